-- Statements of the Postgres store for operations. Each change of an operation locks its row first, then writes lines of its
-- log, which belong to that row. It locks no other row.

-- name: create_operation
-- Commits: a new operation. An id that is taken inserts nothing: the count of rows shows that.
INSERT INTO perdure.operation (id, state, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING id

-- name: lock_operation
-- No other transaction changes the operation until the commit.
SELECT data FROM perdure.operation WHERE id = $1 AND backed_up = 0 FOR UPDATE

-- name: update_operation
-- Commits: the new state of the operation's ledger.
UPDATE perdure.operation SET state = $2, data = $3 WHERE id = $1

-- name: append_lines
-- Commits: more lines of the log, in their order.
INSERT INTO perdure.operation_log (operation_id, number, level, line)
SELECT $1, last.number + new.place, new.level, new.line
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS new (level, line, place),
     (SELECT coalesce(max(number), 0) AS number FROM perdure.operation_log WHERE operation_id = $1) AS last

-- name: back_up_operation
-- Commits: the operation is a backup.
UPDATE perdure.operation SET backed_up = 1 WHERE id = $1

-- name: delete_old_backups
-- Commits: only the newest backups are left. Skips rows that another transaction is deleting.
WITH old AS (
    SELECT id FROM perdure.operation WHERE id IN (
        SELECT id FROM perdure.operation WHERE backed_up = 1 ORDER BY id DESC OFFSET $1
    ) FOR UPDATE SKIP LOCKED
), lines AS (
    DELETE FROM perdure.operation_log WHERE operation_id IN (SELECT id FROM old)
)
DELETE FROM perdure.operation WHERE id IN (SELECT id FROM old)

-- name: select_operation
SELECT data FROM perdure.operation WHERE id = $1 AND backed_up = $2

-- name: select_operation_ids
SELECT id FROM perdure.operation WHERE backed_up = $1 ORDER BY id

-- name: select_lines
SELECT line FROM perdure.operation_log WHERE operation_id = $1 AND ($2 OR level <> 'debug') ORDER BY number
