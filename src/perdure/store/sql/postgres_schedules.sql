-- Statements of the Postgres store for schedules. A write locks the schedule's row first, then writes its ticks.

-- name: create_schedule
-- Commits: a new schedule. A name that is taken inserts nothing, and returns nothing.
INSERT INTO perdure.schedule (scope, name, program, payload, state, look_at_ms, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING revision

-- name: change_schedule
-- Commits: the next revision of a schedule. Returns nothing if another write made it first.
UPDATE perdure.schedule SET program = $3, payload = $4, state = $5, look_at_ms = $6, revision = $7
WHERE scope = $1 AND name = $2 AND revision = $7 - 1 RETURNING revision

-- name: append_ticks
-- Commits: more ticks, in their order.
INSERT INTO perdure.tick (scope, name, number, body)
SELECT $1, $2, last.number + new.place, new.body
FROM unnest($3::text[]) WITH ORDINALITY AS new (body, place),
     (SELECT coalesce(max(number), 0) AS number FROM perdure.tick WHERE scope = $1 AND name = $2) AS last

-- name: delete_old_ticks
-- Commits: only the newest ticks are left.
DELETE FROM perdure.tick WHERE scope = $1 AND name = $2 AND number <= (
    SELECT max(number) FROM perdure.tick WHERE scope = $1 AND name = $2) - $3

-- name: delete_ticks
DELETE FROM perdure.tick WHERE scope = $1 AND name = $2

-- name: delete_schedule
-- Commits: the schedule is gone.
DELETE FROM perdure.schedule WHERE scope = $1 AND name = $2

-- name: select_schedules
-- Schedules in the order of their names: those of one scope, or one schedule, or all.
SELECT scope, name, program, payload, state, revision FROM perdure.schedule
WHERE scope = coalesce($1, scope) AND name = coalesce($2, name) ORDER BY scope, name

-- name: select_due_schedules
-- Schedules of these programs that a host must look at now, the most urgent first, after the skipped ones.
SELECT scope, name, program, payload, state, revision FROM perdure.schedule
WHERE look_at_ms <= $1 AND program = ANY($2) ORDER BY look_at_ms, scope, name LIMIT $3 OFFSET $4

-- name: select_ticks
-- The newest ticks of a schedule, newest first.
SELECT body FROM perdure.tick WHERE scope = $1 AND name = $2 ORDER BY number DESC LIMIT $3
