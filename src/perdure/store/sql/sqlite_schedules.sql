-- Statements of the SQLite store for schedules.

-- name: create_schedule
-- Commits: a new schedule. A name that is taken inserts nothing: the count of rows shows that.
INSERT INTO perdure_schedule (scope, name, program, payload, state, look_at_ms, revision)
VALUES (:scope, :name, :program, :payload, :state, :look_at_ms, 1) ON CONFLICT DO NOTHING

-- name: change_schedule
-- Commits: the next revision of a schedule, unless another write made it first: the count of rows shows that.
UPDATE perdure_schedule
SET program = :program, payload = :payload, state = :state, look_at_ms = :look_at_ms, revision = :revision
WHERE scope = :scope AND name = :name AND revision = :revision - 1

-- name: append_tick
-- Commits: one more tick.
INSERT INTO perdure_tick (scope, name, number, body)
SELECT :scope, :name, coalesce(max(number), 0) + 1, :body FROM perdure_tick WHERE scope = :scope AND name = :name

-- name: delete_old_ticks
-- Commits: only the newest ticks are left.
DELETE FROM perdure_tick WHERE scope = :scope AND name = :name AND number <= (
    SELECT max(number) FROM perdure_tick WHERE scope = :scope AND name = :name) - :keep

-- name: delete_ticks
DELETE FROM perdure_tick WHERE scope = :scope AND name = :name

-- name: delete_schedule
-- Commits: the schedule is gone.
DELETE FROM perdure_schedule WHERE scope = :scope AND name = :name

-- name: select_schedules
-- Schedules in the order of their names: those of one scope, or one schedule, or all.
SELECT scope, name, program, payload, state, revision FROM perdure_schedule
WHERE scope = coalesce(:scope, scope) AND name = coalesce(:name, name) ORDER BY scope, name

-- name: select_due_schedules
-- Schedules of these programs that a host must look at now, the most urgent first, after the skipped ones.
SELECT scope, name, program, payload, state, revision FROM perdure_schedule INDEXED BY perdure_schedule_due
WHERE look_at_ms <= :now_ms AND program IN (SELECT value FROM json_each(:programs))
ORDER BY look_at_ms, scope, name LIMIT :limit OFFSET :skipped

-- name: select_ticks
-- The newest ticks of a schedule, newest first.
SELECT body FROM perdure_tick WHERE scope = :scope AND name = :name ORDER BY number DESC LIMIT :limit
