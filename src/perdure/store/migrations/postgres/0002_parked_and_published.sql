-- Parked runs, published values, and which hosts have claimed work.

ALTER TABLE perdure.run ADD COLUMN parked text;

CREATE TABLE perdure.published (
    run_id  text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    at_ms   bigint NOT NULL,
    PRIMARY KEY (run_id, name)
) WITH (fillfactor = 80);

CREATE INDEX work_host ON perdure.work (host) WHERE host IS NOT NULL;
