-- Schedules start runs by themselves. No existing table can serve: a run row is one execution, and a message needs a run.

CREATE TABLE perdure.schedule (
    scope      text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    program    text NOT NULL,
    payload    bytea NOT NULL,
    state      text NOT NULL,
    look_at_ms bigint,
    revision   bigint NOT NULL,
    PRIMARY KEY (scope, name)
);

CREATE INDEX schedule_due ON perdure.schedule (look_at_ms) WHERE look_at_ms IS NOT NULL;

CREATE TABLE perdure.tick (
    scope      text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    number     bigint NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (scope, name, number)
);
