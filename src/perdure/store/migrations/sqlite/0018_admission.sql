-- Runs that wait to be admitted, and limits. A pending run is a row of `perdure_run` with epoch 0, which no host owns.
-- A run that holds a slot of a limit names it in its own row, so the slot is free when the row says that the run is over.
-- Three new tables, because no existing one can serve: a run's row has no place in a line, and a limit outlives its runs.

ALTER TABLE perdure_run ADD COLUMN slot TEXT;

DROP INDEX perdure_run_open;
CREATE INDEX perdure_run_open ON perdure_run (owner, id) WHERE closed_at_ms IS NULL AND epoch IS NOT 0;
DROP INDEX perdure_run_unowned;
CREATE INDEX perdure_run_unowned ON perdure_run (program) WHERE owner IS NULL AND closed_at_ms IS NULL AND epoch IS NOT 0;
CREATE INDEX perdure_run_slot ON perdure_run (slot, id) WHERE slot IS NOT NULL AND closed_at_ms IS NULL AND epoch IS NOT 0;

CREATE TABLE perdure_pending (
    run_id      TEXT NOT NULL PRIMARY KEY,
    slot        TEXT NOT NULL,
    scope       TEXT NOT NULL,
    program     TEXT NOT NULL,
    priority    INTEGER NOT NULL,
    state       TEXT NOT NULL,
    ready_at_ms INTEGER NOT NULL,
    until_ms    INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_pending_line ON perdure_pending (slot, scope, priority DESC, run_id) WHERE state = 'ready';
CREATE INDEX perdure_pending_slot ON perdure_pending (slot, run_id);
CREATE INDEX perdure_pending_delayed ON perdure_pending (ready_at_ms, run_id) WHERE state = 'delayed';

CREATE TABLE perdure_limit_key (
    slot       TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    rules      TEXT NOT NULL,
    served     TEXT NOT NULL,
    arrival_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_limit_setting (
    kind  TEXT NOT NULL,
    name  TEXT NOT NULL,
    body  TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE VIEW perdure_v1_limits AS
SELECT known.name, known.slot ->> '$[1]' AS scope, known.slot ->> '$[2]' AS key,
       (SELECT count(*) FROM perdure_run AS run
        WHERE run.slot = known.slot AND run.slot IS NOT NULL AND run.closed_at_ms IS NULL AND run.epoch IS NOT 0) AS running,
       (SELECT count(*) FROM perdure_pending AS pending WHERE pending.slot = known.slot) AS waiting,
       known.rules, coalesce(setting.body, '') AS setting
FROM perdure_limit_key AS known
LEFT JOIN perdure_limit_setting AS setting ON setting.kind = 'limit' AND setting.name = known.name;
