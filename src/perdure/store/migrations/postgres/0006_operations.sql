-- Operations that several processes carry out together: the ledger of each, and its log.

CREATE TABLE perdure.operation (
    id        text COLLATE "C" NOT NULL PRIMARY KEY,
    state     text NOT NULL,
    data      text NOT NULL,
    backed_up integer NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE INDEX operation_backup ON perdure.operation (backed_up, id);

CREATE TABLE perdure.operation_log (
    operation_id text COLLATE "C" NOT NULL,
    number       bigint NOT NULL,
    level        text NOT NULL,
    line         text NOT NULL,
    PRIMARY KEY (operation_id, number)
);
