-- The books: runs with their journals and ledgers, messages to runs, and work for any host.

CREATE TABLE perdure_run (
    id            TEXT NOT NULL PRIMARY KEY,
    scope         TEXT NOT NULL,
    program       TEXT NOT NULL,
    version       TEXT NOT NULL,
    digest        TEXT NOT NULL,
    key           TEXT,
    owner         TEXT,
    epoch         INTEGER NOT NULL,
    seq           INTEGER NOT NULL,
    head          BLOB NOT NULL,
    semaphore     INTEGER NOT NULL CHECK (semaphore >= 0),
    status        TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    closed_at_ms  INTEGER
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX perdure_run_key ON perdure_run (scope, program, key) WHERE key IS NOT NULL;
CREATE INDEX perdure_run_open ON perdure_run (owner, id) WHERE closed_at_ms IS NULL;

CREATE TABLE perdure_event (
    run_id TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL,
    body   TEXT NOT NULL,
    prev   BLOB NOT NULL,
    sealed BLOB,
    erased BLOB,
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_ledger (
    run_id  TEXT NOT NULL,
    account TEXT NOT NULL,
    balance INTEGER NOT NULL CHECK (balance BETWEEN 0 AND 999999999999999),
    PRIMARY KEY (run_id, account)
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_message (
    run_id    TEXT NOT NULL,
    guid      TEXT NOT NULL,
    kind      TEXT NOT NULL,
    step      TEXT,
    payload   BLOB,
    due_at_ms INTEGER NOT NULL,
    arrival   INTEGER NOT NULL,
    state     TEXT NOT NULL DEFAULT 'pending',
    reason    TEXT,
    PRIMARY KEY (run_id, guid)
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_message_due ON perdure_message (due_at_ms) WHERE state = 'pending';

CREATE TABLE perdure_work (
    run_id          TEXT NOT NULL,
    step            TEXT NOT NULL,
    guid            TEXT NOT NULL,
    queue           TEXT NOT NULL,
    priority        INTEGER NOT NULL,
    payload         BLOB,
    available_at_ms INTEGER NOT NULL,
    token           TEXT,
    host            TEXT,
    claims          INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_work_queue ON perdure_work (queue, priority DESC, available_at_ms);
