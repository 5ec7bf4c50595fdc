-- What stays of runs that were erased, archived or purged. No existing table can serve: the row of an archived or purged
-- run is gone, and its journal with it.

CREATE TABLE perdure_retained (
    run_id        TEXT NOT NULL PRIMARY KEY,
    scope         TEXT NOT NULL,
    program       TEXT NOT NULL,
    status        TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    closed_at_ms  INTEGER NOT NULL,
    entries       INTEGER NOT NULL,
    head          BLOB NOT NULL,
    parent        TEXT,
    forked_from   TEXT,
    chain         TEXT,
    archive       TEXT,
    receipt       TEXT,
    purged_at_ms  INTEGER,
    is_unfinished INTEGER NOT NULL DEFAULT 0 CHECK (is_unfinished IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_retained_archived ON perdure_retained (status, closed_at_ms, run_id) WHERE archive IS NOT NULL;
CREATE INDEX perdure_retained_parent ON perdure_retained (parent) WHERE archive IS NOT NULL AND parent IS NOT NULL;
CREATE INDEX perdure_retained_forks ON perdure_retained (forked_from) WHERE archive IS NOT NULL AND forked_from IS NOT NULL;
CREATE INDEX perdure_retained_chain ON perdure_retained (chain) WHERE archive IS NOT NULL AND chain IS NOT NULL;
CREATE INDEX perdure_retained_unfinished ON perdure_retained (run_id) WHERE is_unfinished = 1;

CREATE INDEX perdure_message_aside ON perdure_message (arrival)
    WHERE state <> 'pending' AND substr(kind, 1, 4) <> 'act:';
