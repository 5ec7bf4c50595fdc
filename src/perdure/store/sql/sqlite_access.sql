-- Tokens of the HTTP API, and its audit log.

-- name: insert_token
-- Commits: a token. A write that is repeated after a lost connection changes nothing.
INSERT INTO perdure_token (id, hash, label, role, scope, created_at_ms, expires_at_ms, revoked_at_ms)
VALUES (:id, :hash, :label, :role, :scope, :created_at_ms, :expires_at_ms, :revoked_at_ms)
ON CONFLICT (id) DO NOTHING

-- name: revoke_token
-- Commits: the token is revoked, unless it is already.
UPDATE perdure_token SET revoked_at_ms = :now_ms WHERE id = :id AND revoked_at_ms IS NULL RETURNING id

-- name: select_tokens
-- All tokens, the newest first.
SELECT id, hash, label, role, scope, created_at_ms, expires_at_ms, revoked_at_ms FROM perdure_token
ORDER BY created_at_ms DESC, id

-- name: select_token
-- One token.
SELECT id, hash, label, role, scope, created_at_ms, expires_at_ms, revoked_at_ms FROM perdure_token WHERE id = :id

-- name: has_tokens
-- Whether there was ever a token.
SELECT EXISTS (SELECT 1 FROM perdure_token)

-- name: insert_record
-- Commits: one record of the audit log.
INSERT INTO perdure_audit (id, at_ms, actor, role, action, target, scope, reason, outcome) VALUES (:id, :at_ms, :actor, :role, :action, :target, :scope, :reason, :outcome)
ON CONFLICT (id) DO NOTHING

-- name: select_records
-- A page of the audit log, the newest first.
SELECT id, at_ms, actor, role, action, target, scope, reason, outcome FROM perdure_audit
WHERE id < :before AND (:actor IS NULL OR actor = :actor) AND (:action IS NULL OR action = :action) ORDER BY id DESC LIMIT :limit
