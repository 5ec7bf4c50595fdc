-- Operations that several processes carry out together: the ledger of each, and its log.

CREATE TABLE perdure_operation (
    id        TEXT NOT NULL PRIMARY KEY,
    state     TEXT NOT NULL,
    data      TEXT NOT NULL,
    backed_up INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_operation_backup ON perdure_operation (backed_up, id);

CREATE TABLE perdure_operation_log (
    operation_id TEXT NOT NULL,
    number       INTEGER NOT NULL,
    level        TEXT NOT NULL,
    line         TEXT NOT NULL,
    PRIMARY KEY (operation_id, number)
) STRICT, WITHOUT ROWID;
