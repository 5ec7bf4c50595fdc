"""Routes of runs: lists, one run, its books, acts."""
