-- Parked runs, published values, and which hosts have claimed work.

ALTER TABLE perdure_run ADD COLUMN parked TEXT;

CREATE TABLE perdure_published (
    run_id  TEXT NOT NULL,
    name    TEXT NOT NULL,
    payload BLOB NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_work_host ON perdure_work (host) WHERE host IS NOT NULL;
