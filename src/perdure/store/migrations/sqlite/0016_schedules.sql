-- Schedules start runs by themselves. No existing table can serve: a run row is one execution, and a message needs a run.

CREATE TABLE perdure_schedule (
    scope      TEXT NOT NULL,
    name       TEXT NOT NULL,
    program    TEXT NOT NULL,
    payload    BLOB NOT NULL,
    state      TEXT NOT NULL,
    look_at_ms INTEGER,
    revision   INTEGER NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_schedule_due ON perdure_schedule (look_at_ms) WHERE look_at_ms IS NOT NULL;

CREATE TABLE perdure_tick (
    scope      TEXT NOT NULL,
    name       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (scope, name, number)
) STRICT, WITHOUT ROWID;
