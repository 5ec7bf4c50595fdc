-- Tokens of the HTTP API and its audit log. No existing table can serve: both belong to the store, not to a run, and the
-- audit log outlives the runs that it names.

CREATE TABLE perdure.token (
    id            text COLLATE "C" PRIMARY KEY,
    hash          bytea NOT NULL,
    label         text NOT NULL,
    role          text NOT NULL,
    scope         text,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    revoked_at_ms bigint
);

CREATE TABLE perdure.audit (
    id      text COLLATE "C" PRIMARY KEY,
    at_ms   bigint NOT NULL,
    actor   text NOT NULL,
    role    text NOT NULL,
    action  text NOT NULL,
    target  text NOT NULL,
    scope   text NOT NULL,
    reason  text NOT NULL,
    outcome text NOT NULL
);
