-- Runs that are not advanced, and what programs let clients read.

ALTER TABLE perdure_run ADD COLUMN parked TEXT;

CREATE TABLE perdure_published (
    run_id  TEXT NOT NULL,
    name    TEXT NOT NULL,
    payload BLOB NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;
