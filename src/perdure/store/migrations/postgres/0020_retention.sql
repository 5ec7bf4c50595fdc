-- What stays of runs that were erased, archived or purged. No existing table can serve: the row of an archived or purged
-- run is gone, and its journal with it.

CREATE TABLE perdure.retained (
    run_id        text COLLATE "C" PRIMARY KEY,
    scope         text NOT NULL,
    program       text NOT NULL,
    status        text NOT NULL,
    created_at_ms bigint NOT NULL,
    closed_at_ms  bigint NOT NULL,
    entries       bigint NOT NULL,
    head          bytea NOT NULL,
    parent        text COLLATE "C",
    forked_from   text COLLATE "C",
    chain         text COLLATE "C",
    archive       text,
    receipt       text,
    purged_at_ms  bigint,
    is_unfinished bigint NOT NULL DEFAULT 0 CHECK (is_unfinished IN (0, 1))
);

CREATE INDEX retained_archived ON perdure.retained (status, closed_at_ms, run_id) WHERE archive IS NOT NULL;
CREATE INDEX retained_parent ON perdure.retained (parent) WHERE archive IS NOT NULL AND parent IS NOT NULL;
CREATE INDEX retained_forks ON perdure.retained (forked_from) WHERE archive IS NOT NULL AND forked_from IS NOT NULL;
CREATE INDEX retained_chain ON perdure.retained (chain) WHERE archive IS NOT NULL AND chain IS NOT NULL;
CREATE INDEX retained_unfinished ON perdure.retained (run_id) WHERE is_unfinished = 1;

CREATE INDEX message_aside ON perdure.message (arrival)
    WHERE state <> 'pending' AND substr(kind, 1, 4) <> 'act:';
