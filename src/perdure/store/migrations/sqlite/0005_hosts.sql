-- Hosts and their heartbeats.

CREATE TABLE perdure_host (
    id             TEXT NOT NULL PRIMARY KEY,
    beat           INTEGER NOT NULL,
    stale_after_ms INTEGER NOT NULL,
    queues         TEXT NOT NULL,
    started_at_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
