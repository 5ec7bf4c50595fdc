"""`perdure retention` and `perdure store`."""
