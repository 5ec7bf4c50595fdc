-- Graphs: values that wait for nodes, hooks and search keys for signals, and deployed versions.

CREATE TABLE perdure_readiness (
    run_id    TEXT NOT NULL,
    step      TEXT NOT NULL,
    required  INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    CHECK (completed BETWEEN 0 AND required),
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_inbox (
    run_id   TEXT NOT NULL,
    step     TEXT NOT NULL,
    position INTEGER NOT NULL,
    source   TEXT NOT NULL,
    variable TEXT NOT NULL,
    value    BLOB NOT NULL,
    PRIMARY KEY (run_id, step, position, source, variable)
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_hook (
    run_id   TEXT NOT NULL,
    step     TEXT NOT NULL,
    kind     TEXT NOT NULL CHECK (kind IN ('wait', 'key')),
    mailbox  TEXT NOT NULL,
    topic    TEXT NOT NULL,
    key      TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (run_id, step, kind, mailbox)
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_hook_mailbox ON perdure_hook (mailbox, kind, since_ms);
CREATE INDEX perdure_hook_key ON perdure_hook (topic, key) WHERE kind = 'key';

CREATE TABLE perdure_program (
    name           TEXT NOT NULL,
    version        TEXT NOT NULL,
    digest         TEXT NOT NULL,
    content        TEXT NOT NULL,
    deployed_at_ms INTEGER NOT NULL,
    is_active      INTEGER NOT NULL DEFAULT 0,
    activations    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX perdure_program_active ON perdure_program (name) WHERE is_active = 1;
CREATE INDEX perdure_program_activations ON perdure_program (activations);
