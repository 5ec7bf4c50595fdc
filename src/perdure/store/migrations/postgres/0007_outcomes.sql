-- Whether a transaction committed whose connection was lost during the commit: a row that it wrote itself.

CREATE TABLE perdure.outcome (
    token     text COLLATE "C" NOT NULL PRIMARY KEY,
    committed integer NOT NULL,
    at_ms     bigint NOT NULL
);
