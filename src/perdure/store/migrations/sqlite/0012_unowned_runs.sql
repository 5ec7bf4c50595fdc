-- Whether there are runs without an owner for a host is looked up by program, not by reading all of them.

CREATE INDEX perdure_run_unowned ON perdure_run (program) WHERE owner IS NULL AND closed_at_ms IS NULL;
