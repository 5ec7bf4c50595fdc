-- Entries are kept in the order in which they come, and found by their key through an index. Kept in the order of
-- runs, each step of each run had a page of its own to change, and to split before long: two pages for what takes less
-- than one.
ALTER TABLE perdure_event RENAME TO perdure_event_by_run;

CREATE TABLE perdure_event (
    run_id TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL,
    body   TEXT NOT NULL,
    prev   BLOB NOT NULL,
    sealed BLOB,
    erased BLOB,
    PRIMARY KEY (run_id, seq)
) STRICT;

INSERT INTO perdure_event (run_id, seq, at_ms, body, prev, sealed, erased)
SELECT run_id, seq, at_ms, body, prev, sealed, erased FROM perdure_event_by_run ORDER BY run_id, seq;

DROP TABLE perdure_event_by_run;
