-- The event bus. No existing table can serve: a mark per run and bus moves without the run's own commits, so it can't be
-- a column of the run, and a dead letter outlives its run's row there.

CREATE TABLE perdure.bus (
    name          text COLLATE "C" NOT NULL PRIMARY KEY,
    programs      text,
    since_ms      bigint NOT NULL,
    down_since_ms bigint,
    error         text
);

CREATE TABLE perdure.publication (
    bus            text COLLATE "C" NOT NULL,
    run_id         text COLLATE "C" NOT NULL,
    replay         text COLLATE "C" NOT NULL,
    seq            bigint NOT NULL,
    end_seq        bigint,
    holder         text,
    lease_until_ms bigint NOT NULL,
    PRIMARY KEY (bus, run_id, replay)
) WITH (fillfactor = 80);

CREATE TABLE perdure.dead_letter (
    bus    text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    seq    bigint NOT NULL,
    type   text NOT NULL,
    reason text NOT NULL,
    tries  bigint NOT NULL,
    at_ms  bigint NOT NULL,
    PRIMARY KEY (bus, run_id, seq)
);
