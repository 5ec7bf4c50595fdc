-- Graphs: values that wait for nodes, hooks and search keys for signals, and deployed versions.

CREATE TABLE perdure.readiness (
    run_id    text COLLATE "C" NOT NULL,
    step      text COLLATE "C" NOT NULL,
    required  bigint NOT NULL,
    completed bigint NOT NULL,
    CHECK (completed BETWEEN 0 AND required),
    PRIMARY KEY (run_id, step)
) WITH (fillfactor = 80);

CREATE TABLE perdure.inbox (
    run_id   text COLLATE "C" NOT NULL,
    step     text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    source   text COLLATE "C" NOT NULL,
    variable text COLLATE "C" NOT NULL,
    value    bytea NOT NULL,
    PRIMARY KEY (run_id, step, position, source, variable)
);

CREATE TABLE perdure.hook (
    run_id   text COLLATE "C" NOT NULL,
    step     text COLLATE "C" NOT NULL,
    kind     text COLLATE "C" NOT NULL CHECK (kind IN ('wait', 'key')),
    mailbox  text COLLATE "C" NOT NULL,
    topic    text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    since_ms bigint NOT NULL,
    PRIMARY KEY (run_id, step, kind, mailbox)
);

CREATE INDEX hook_mailbox ON perdure.hook (mailbox, kind, since_ms);
CREATE INDEX hook_key ON perdure.hook (topic, key) WHERE kind = 'key';

CREATE TABLE perdure.program (
    name           text COLLATE "C" NOT NULL,
    version        text COLLATE "C" NOT NULL,
    digest         text NOT NULL,
    content        text NOT NULL,
    deployed_at_ms bigint NOT NULL,
    is_active      integer NOT NULL DEFAULT 0,
    activations    integer NOT NULL DEFAULT 0,
    PRIMARY KEY (name, version)
);

CREATE UNIQUE INDEX program_active ON perdure.program (name) WHERE is_active = 1;
CREATE INDEX program_activations ON perdure.program (activations);
