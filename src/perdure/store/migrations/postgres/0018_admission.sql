-- Runs that wait to be admitted, and limits. A pending run is a row of `perdure.run` with epoch 0, which no host owns.
-- A run that holds a slot of a limit names it in its own row, so the slot is free when the row says that the run is over.
-- Three new tables, because no existing one can serve: a run's row has no place in a line, and a limit outlives its runs.

ALTER TABLE perdure.run ADD COLUMN slot text COLLATE "C";

DROP INDEX perdure.run_open;
CREATE INDEX run_open ON perdure.run (owner, id) WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0;
DROP INDEX perdure.run_unowned;
CREATE INDEX run_unowned ON perdure.run (program) WHERE owner IS NULL AND closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0;
CREATE INDEX run_slot ON perdure.run (slot, id) WHERE slot IS NOT NULL AND closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0;

CREATE TABLE perdure.pending (
    run_id      text COLLATE "C" NOT NULL PRIMARY KEY,
    slot        text COLLATE "C" NOT NULL,
    scope       text COLLATE "C" NOT NULL,
    program     text NOT NULL,
    priority    bigint NOT NULL,
    state       text NOT NULL,
    ready_at_ms bigint NOT NULL,
    until_ms    bigint
);

CREATE INDEX pending_line ON perdure.pending (slot, scope, priority DESC, run_id) WHERE state = 'ready';
CREATE INDEX pending_slot ON perdure.pending (slot, run_id);
CREATE INDEX pending_delayed ON perdure.pending (ready_at_ms, run_id) WHERE state = 'delayed';

CREATE TABLE perdure.limit_key (
    slot       text COLLATE "C" NOT NULL PRIMARY KEY,
    name       text NOT NULL,
    rules      text NOT NULL,
    served     text NOT NULL,
    arrival_us bigint NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE perdure.limit_setting (
    kind  text COLLATE "C" NOT NULL,
    name  text COLLATE "C" NOT NULL,
    body  text NOT NULL,
    at_ms bigint NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE VIEW perdure.perdure_v1_limits AS
SELECT known.name, known.slot::json ->> 1 AS scope, known.slot::json ->> 2 AS key,
       (SELECT count(*) FROM perdure.run AS run
        WHERE run.slot = known.slot AND run.slot IS NOT NULL AND run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0) AS running,
       (SELECT count(*) FROM perdure.pending AS pending WHERE pending.slot = known.slot) AS waiting,
       known.rules, coalesce(setting.body, '') AS setting
FROM perdure.limit_key AS known
LEFT JOIN perdure.limit_setting AS setting ON setting.kind = 'limit' AND setting.name = known.name;
