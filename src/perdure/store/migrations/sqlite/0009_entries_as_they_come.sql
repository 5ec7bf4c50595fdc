-- Entries are in the order of insertion, and an index finds them by their key. In the order of runs, each step of each
-- run changed a page of its own, and split it before long: two pages for entries that take less than one.
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
