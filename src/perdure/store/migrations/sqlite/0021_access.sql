-- Tokens of the HTTP API and its audit log. No existing table can serve: both belong to the store, not to a run, and the
-- audit log outlives the runs that it names.

CREATE TABLE perdure_token (
    id            TEXT NOT NULL PRIMARY KEY,
    hash          BLOB NOT NULL,
    label         TEXT NOT NULL,
    role          TEXT NOT NULL,
    scope         TEXT,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    revoked_at_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_audit (
    id      TEXT NOT NULL PRIMARY KEY,
    at_ms   INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    role    TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    scope   TEXT NOT NULL,
    reason  TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT, WITHOUT ROWID;
