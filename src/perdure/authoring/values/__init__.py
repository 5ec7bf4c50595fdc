"""Which values and exceptions can be stored, and how."""
