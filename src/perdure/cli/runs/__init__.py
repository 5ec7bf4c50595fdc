"""`perdure runs`: lists, shows and moves runs on."""
