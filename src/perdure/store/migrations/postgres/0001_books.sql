-- The books: runs with their journals and ledgers, messages to runs, and work for any host.
-- Ids compare bytewise (COLLATE "C"): cheaper, and the same order in every locale.

CREATE TABLE perdure.run (
    id            text COLLATE "C" NOT NULL PRIMARY KEY,
    scope         text COLLATE "C" NOT NULL,
    program       text COLLATE "C" NOT NULL,
    version       text NOT NULL,
    digest        text NOT NULL,
    key           text COLLATE "C",
    owner         text COLLATE "C",
    epoch         bigint NOT NULL,
    seq           bigint NOT NULL,
    head          bytea NOT NULL,
    semaphore     bigint NOT NULL CHECK (semaphore >= 0),
    status        text NOT NULL,
    created_at_ms bigint NOT NULL,
    closed_at_ms  bigint
) WITH (fillfactor = 80);

CREATE UNIQUE INDEX run_key ON perdure.run (scope, program, key) WHERE key IS NOT NULL;
CREATE INDEX run_open ON perdure.run (owner, id) WHERE closed_at_ms IS NULL;

CREATE TABLE perdure.event (
    run_id text COLLATE "C" NOT NULL,
    seq    bigint NOT NULL,
    at_ms  bigint NOT NULL,
    body   text NOT NULL,
    prev   bytea NOT NULL,
    sealed bytea,
    erased bytea,
    PRIMARY KEY (run_id, seq)
);

CREATE TABLE perdure.ledger (
    run_id  text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    balance bigint NOT NULL CHECK (balance BETWEEN 0 AND 999999999999999),
    PRIMARY KEY (run_id, account)
) WITH (fillfactor = 80);

CREATE TABLE perdure.message (
    run_id    text COLLATE "C" NOT NULL,
    guid      text COLLATE "C" NOT NULL,
    kind      text NOT NULL,
    step      text,
    payload   bytea,
    due_at_ms bigint NOT NULL,
    arrival   bigint NOT NULL,
    state     text NOT NULL DEFAULT 'pending',
    reason    text,
    PRIMARY KEY (run_id, guid)
);

CREATE INDEX message_due ON perdure.message (due_at_ms) WHERE state = 'pending';

CREATE TABLE perdure.work (
    run_id          text COLLATE "C" NOT NULL,
    step            text COLLATE "C" NOT NULL,
    guid            text NOT NULL,
    queue           text COLLATE "C" NOT NULL,
    priority        integer NOT NULL,
    payload         bytea,
    available_at_ms bigint NOT NULL,
    token           text,
    host            text,
    claims          integer NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, step)
);

CREATE INDEX work_queue ON perdure.work (queue, priority DESC, available_at_ms);
