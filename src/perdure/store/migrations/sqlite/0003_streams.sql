-- Streams: values that programs append for clients to read, in order.

CREATE TABLE perdure_stream (
    run_id TEXT NOT NULL,
    name   TEXT NOT NULL,
    length INTEGER NOT NULL,
    PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_chunk (
    run_id   TEXT NOT NULL,
    name     TEXT NOT NULL,
    position INTEGER NOT NULL,
    step     TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    claim    INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    payload  BLOB NOT NULL,
    at_ms    INTEGER NOT NULL,
    PRIMARY KEY (run_id, name, position)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX perdure_chunk_number ON perdure_chunk (run_id, name, step, attempt, claim, number);
