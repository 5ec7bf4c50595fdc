-- Hosts and their heartbeats.

CREATE TABLE perdure.host (
    id             text COLLATE "C" NOT NULL PRIMARY KEY,
    beat           bigint NOT NULL,
    stale_after_ms bigint NOT NULL,
    queues         text NOT NULL,
    started_at_ms  bigint NOT NULL
) WITH (fillfactor = 50);
