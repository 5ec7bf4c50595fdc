-- Streams: values that programs append for clients to read, in order.

CREATE TABLE perdure.stream (
    run_id text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    length bigint NOT NULL,
    PRIMARY KEY (run_id, name)
) WITH (fillfactor = 80);

CREATE TABLE perdure.chunk (
    run_id   text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    step     text COLLATE "C" NOT NULL,
    attempt  integer NOT NULL,
    claim    integer NOT NULL,
    number   bigint NOT NULL,
    payload  bytea NOT NULL,
    at_ms    bigint NOT NULL,
    PRIMARY KEY (run_id, name, position)
);

CREATE UNIQUE INDEX chunk_number ON perdure.chunk (run_id, name, step, attempt, claim, number) INCLUDE (position);
