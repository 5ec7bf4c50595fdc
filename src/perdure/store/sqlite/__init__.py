"""SQLite: one file, one writer at a time, several processes."""
