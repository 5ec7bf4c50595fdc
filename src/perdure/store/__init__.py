"""The only SQL: bundles committed to SQLite or Postgres."""
