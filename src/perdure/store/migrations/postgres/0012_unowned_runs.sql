-- Whether there are runs without an owner for a host is looked up by program, not by reading all of them.

CREATE INDEX run_unowned ON perdure.run (program) WHERE owner IS NULL AND closed_at_ms IS NULL;
