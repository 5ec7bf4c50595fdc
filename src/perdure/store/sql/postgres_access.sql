-- Tokens of the HTTP API, and its audit log.

-- name: insert_token
-- Commits: a token. A write that is repeated after a lost connection changes nothing.
INSERT INTO perdure.token (id, hash, label, role, scope, created_at_ms, expires_at_ms, revoked_at_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO NOTHING

-- name: revoke_token
-- Commits: the token is revoked, unless it is already.
UPDATE perdure.token SET revoked_at_ms = $1 WHERE id = $2 AND revoked_at_ms IS NULL RETURNING id

-- name: select_tokens
-- All tokens, the newest first.
SELECT id, hash, label, role, scope, created_at_ms, expires_at_ms, revoked_at_ms FROM perdure.token
ORDER BY created_at_ms DESC, id

-- name: select_token
-- One token.
SELECT id, hash, label, role, scope, created_at_ms, expires_at_ms, revoked_at_ms FROM perdure.token WHERE id = $1

-- name: has_tokens
-- Whether there was ever a token.
SELECT EXISTS (SELECT 1 FROM perdure.token)

-- name: insert_record
-- Commits: one record of the audit log.
INSERT INTO perdure.audit (id, at_ms, actor, role, action, target, scope, reason, outcome) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (id) DO NOTHING

-- name: select_records
-- A page of the audit log, the newest first.
SELECT id, at_ms, actor, role, action, target, scope, reason, outcome FROM perdure.audit
WHERE id < $1 AND ($2::text IS NULL OR actor = $2) AND ($3::text IS NULL OR action = $3) ORDER BY id DESC LIMIT $4
