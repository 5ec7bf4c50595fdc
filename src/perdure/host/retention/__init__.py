"""Archives, erases and purges runs that are over, by policies and by hand."""
