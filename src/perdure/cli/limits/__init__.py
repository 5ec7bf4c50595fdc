"""`perdure limits`: how many runs may be open, and how many wait."""
