-- Statements of the SQLite store for operations. Each change of an operation runs in a write transaction, which holds the
-- file's one write lock: so a value that it reads stays true until the commit.

-- name: create_operation
-- Commits: a new operation. An id that is taken inserts nothing: the count of rows shows that.
INSERT INTO perdure_operation (id, state, data) VALUES (:id, :state, :data) ON CONFLICT DO NOTHING

-- name: lock_operation
SELECT data FROM perdure_operation WHERE id = :id AND backed_up = 0

-- name: update_operation
-- Commits: the new state of the operation's ledger.
UPDATE perdure_operation SET state = :state, data = :data WHERE id = :id

-- name: append_line
-- Commits: one more line of the log.
INSERT INTO perdure_operation_log (operation_id, number, level, line)
SELECT :id, coalesce(max(number), 0) + 1, :level, :line FROM perdure_operation_log WHERE operation_id = :id

-- name: back_up_operation
-- Commits: the operation is a backup.
UPDATE perdure_operation SET backed_up = 1 WHERE id = :id

-- name: select_old_backups
-- The backups that are not among the newest.
SELECT id FROM perdure_operation WHERE backed_up = 1 ORDER BY id DESC LIMIT -1 OFFSET :keep

-- name: delete_operation
DELETE FROM perdure_operation WHERE id = :id

-- name: delete_lines
DELETE FROM perdure_operation_log WHERE operation_id = :id

-- name: select_operation
SELECT data FROM perdure_operation WHERE id = :id AND backed_up = :backed_up

-- name: select_operation_ids
SELECT id FROM perdure_operation WHERE backed_up = :backed_up ORDER BY id

-- name: select_lines
SELECT line FROM perdure_operation_log
WHERE operation_id = :id AND (:debug OR level <> 'debug') ORDER BY number
