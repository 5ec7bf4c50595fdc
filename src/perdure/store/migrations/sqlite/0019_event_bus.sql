-- The event bus. No existing table can serve: a mark per run and bus moves without the run's own commits, so it can't be
-- a column of the run, and a dead letter outlives its run's row there.

CREATE TABLE perdure_bus (
    name          TEXT NOT NULL PRIMARY KEY,
    programs      TEXT,
    since_ms      INTEGER NOT NULL,
    down_since_ms INTEGER,
    error         TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_publication (
    bus            TEXT NOT NULL,
    run_id         TEXT NOT NULL,
    replay         TEXT NOT NULL,
    seq            INTEGER NOT NULL,
    end_seq        INTEGER,
    holder         TEXT,
    lease_until_ms INTEGER NOT NULL,
    PRIMARY KEY (bus, run_id, replay)
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_dead_letter (
    bus    TEXT NOT NULL,
    run_id TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    type   TEXT NOT NULL,
    reason TEXT NOT NULL,
    tries  INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL,
    PRIMARY KEY (bus, run_id, seq)
) STRICT, WITHOUT ROWID;
