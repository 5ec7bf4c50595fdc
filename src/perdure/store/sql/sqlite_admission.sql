-- Statements of the SQLite store for admission. `:rows` stands for as many rows of parameters as there are.
-- A write transaction is BEGIN IMMEDIATE, so what a transaction counts can't change before it commits.

-- name: know_limits
-- Commits: limits with the rules of the newest start.
INSERT INTO perdure_limit_key (slot, name, rules, served, arrival_us)
SELECT column1, column2, column3, '', 0 FROM (VALUES :rows) WHERE true
ON CONFLICT (slot) DO UPDATE SET rules = excluded.rules
RETURNING slot, rules, served, arrival_us,
          (SELECT body FROM perdure_limit_setting AS setting WHERE setting.kind = 'limit' AND setting.name = perdure_limit_key.name)

-- name: lock_limits
SELECT known.slot, known.rules, known.served, known.arrival_us, setting.body
FROM (VALUES :rows) AS b CROSS JOIN perdure_limit_key AS known ON known.slot = b.column1
LEFT JOIN perdure_limit_setting AS setting ON setting.kind = 'limit' AND setting.name = known.name

-- name: charge_limits
-- Commits: which scope was served last, and when the rate has the next one due.
UPDATE perdure_limit_key AS known SET served = b.column2, arrival_us = b.column3
FROM (VALUES :rows) AS b WHERE known.slot = b.column1

-- name: count_slot
-- How many runs hold the slot, whether one is ready for it, and how many wait for it. Counts up to a number.
SELECT (SELECT count(*) FROM (SELECT 1 FROM perdure_run AS run INDEXED BY perdure_run_slot
            WHERE run.slot = :slot AND run.slot IS NOT NULL AND run.closed_at_ms IS NULL AND run.epoch IS NOT 0 LIMIT :running)),
       (SELECT count(*) FROM (SELECT 1 FROM perdure_pending WHERE slot = :slot AND state = 'ready' LIMIT 1)),
       (SELECT count(*) FROM (SELECT 1 FROM perdure_pending WHERE slot = :slot LIMIT :waiting))

-- name: select_holders
-- The open run that holds the slot longest, if one does; with its chain.
SELECT id, chain, owner FROM perdure_run INDEXED BY perdure_run_slot
WHERE slot = :slot AND slot IS NOT NULL AND closed_at_ms IS NULL AND epoch IS NOT 0
  AND status <> 'cancelling' AND NOT EXISTS (
      SELECT 1 FROM perdure_message AS m WHERE m.run_id = perdure_run.id AND m.kind = 'cancel' AND m.state = 'pending')
ORDER BY id LIMIT 1

-- name: select_holder_to_join
SELECT id FROM perdure_run INDEXED BY perdure_run_slot
WHERE slot = :slot AND slot IS NOT NULL AND closed_at_ms IS NULL AND epoch IS NOT 0 ORDER BY id LIMIT 1

-- name: select_in_line
-- Runs that wait for a slot, the one that waits longest first.
SELECT run_id FROM perdure_pending WHERE slot = :slot ORDER BY run_id LIMIT :limit

-- name: hand_over_keys
-- Commits: runs that are over give their start keys to new ones, which are inserted next.
UPDATE perdure_run AS run SET replaced_by = b.column2
FROM (VALUES :rows) AS b
WHERE run.id = b.column1 AND run.replaced_by IS NULL AND run.closed_at_ms IS NOT NULL

-- name: add_runs
-- Commits: runs without entries. A key that is taken, or an id that exists, inserts nothing.
INSERT INTO perdure_run (id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status, created_at_ms, slot)
SELECT column1, column2, column3, column4, column5, column6, column7, column8, 0, column9, 0, 'pending', column10, column11
FROM (VALUES :rows) WHERE true
ON CONFLICT DO NOTHING
RETURNING id

-- name: enrol_runs
-- Commits: new runs are to be published to buses, from their first entry on.
INSERT INTO perdure_publication (run_id, bus, holder, lease_until_ms, seq, replay)
VALUES :rows
ON CONFLICT DO NOTHING

-- name: select_taken
-- The run that has the id or holds the key.
SELECT id FROM perdure_run WHERE id = :run_id
UNION ALL
SELECT id FROM perdure_run
WHERE key IS NOT NULL AND replaced_by IS NULL AND scope = :scope AND program = :program AND key = :key
LIMIT 1

-- name: send
-- Commits: messages, once per GUID.
INSERT INTO perdure_message (run_id, guid, kind, payload, due_at_ms, arrival)
SELECT column1, column2, column3, column4, column5, column6 FROM (VALUES :rows) WHERE true
ON CONFLICT (run_id, guid) DO NOTHING

-- name: wait_in_line
-- Commits: runs wait to be admitted.
INSERT INTO perdure_pending (run_id, slot, scope, program, priority, state, ready_at_ms, until_ms)
VALUES :rows

-- name: tag_waiting
-- Commits: lists find waiting runs by their tags. The same rows as `hook` writes when the runs begin.
INSERT INTO perdure_hook (run_id, step, kind, mailbox, topic, key, since_ms)
VALUES :rows
ON CONFLICT (run_id, step, kind, mailbox) DO NOTHING

-- name: select_runs
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure_run WHERE id IN (SELECT column1 FROM (VALUES :rows)) ORDER BY id

-- name: end_delays
-- Commits: runs whose delay is over are ready.
UPDATE perdure_pending SET state = 'ready' WHERE run_id IN (
    SELECT run_id FROM perdure_pending INDEXED BY perdure_pending_delayed
    WHERE state = 'delayed' AND ready_at_ms <= :now_ms ORDER BY ready_at_ms, run_id LIMIT :limit)
RETURNING slot

-- name: select_busy_slots
-- Steps from each slot for which a run is ready to the next.
WITH RECURSIVE found (slot, number) AS (
    SELECT (SELECT min(slot) FROM perdure_pending WHERE state = 'ready' AND slot > :after), 1
    UNION ALL
    SELECT (SELECT min(slot) FROM perdure_pending WHERE state = 'ready' AND slot > found.slot), number + 1
    FROM found WHERE slot IS NOT NULL AND number < :limit
)
SELECT slot FROM found WHERE slot IS NOT NULL

-- name: select_line_scopes
-- Steps from each scope with a ready run to the next, from the one after the scope that was served last.
WITH RECURSIVE found (scope, number) AS (
    SELECT (SELECT min(scope) FROM perdure_pending WHERE state = 'ready' AND slot = :slot AND scope > :served), 1
    UNION ALL
    SELECT (SELECT min(scope) FROM perdure_pending WHERE state = 'ready' AND slot = :slot AND scope > found.scope), number + 1
    FROM found WHERE scope IS NOT NULL AND number < :limit
)
SELECT scope FROM found WHERE scope IS NOT NULL

-- name: select_scopes
-- Steps from each scope with a ready run to the next, from the first one on.
WITH RECURSIVE found (scope, number) AS (
    SELECT (SELECT min(scope) FROM perdure_pending WHERE state = 'ready' AND slot = :slot), 1
    UNION ALL
    SELECT (SELECT min(scope) FROM perdure_pending WHERE state = 'ready' AND slot = :slot AND scope > found.scope), number + 1
    FROM found WHERE scope IS NOT NULL AND number < :limit
)
SELECT scope FROM found WHERE scope IS NOT NULL

-- name: select_line
-- The next runs of a scope: the most urgent first, then the oldest.
SELECT run_id, program FROM perdure_pending INDEXED BY perdure_pending_line
WHERE state = 'ready' AND slot = :slot AND scope = :scope ORDER BY priority DESC, run_id LIMIT :limit

-- name: admit
-- Commits: pending runs have owners, under their first epoch. Each is admitted once.
UPDATE perdure_run AS run SET owner = b.column2, epoch = 1
FROM (VALUES :rows) AS b
WHERE run.id = b.column1 AND run.epoch = 0 AND run.closed_at_ms IS NULL
RETURNING id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
          created_at_ms, closed_at_ms, parked, chain

-- name: leave_line
-- Commits: runs do not wait to be admitted any more. Before `admit`, so that all lock a run's place before its row.
DELETE FROM perdure_pending WHERE run_id IN (SELECT column1 FROM (VALUES :rows))
RETURNING run_id, until_ms

-- name: forget_keys
-- Commits: runs that were debounced have no start key any more, so that a later start with it makes another run.
UPDATE perdure_run SET key = NULL WHERE id IN (SELECT column1 FROM (VALUES :rows)) AND epoch = 0

-- name: call_up
-- Commits: a pending run is ready at once and waits for no limit, so that its host takes in what ends it.
UPDATE perdure_pending SET state = 'ready', slot = '' WHERE run_id IN (SELECT column1 FROM (VALUES :rows))
RETURNING run_id

-- name: give_up_slots
-- Commits: pending runs will hold no slot.
UPDATE perdure_run SET slot = NULL WHERE id IN (SELECT column1 FROM (VALUES :rows)) AND epoch = 0

-- name: approve
-- Commits: a run that waited for approval is ready, or delayed.
UPDATE perdure_pending SET state = CASE WHEN ready_at_ms > :now_ms THEN 'delayed' ELSE 'ready' END
WHERE run_id = :run_id AND state = 'waiting'
RETURNING slot

-- name: select_pending
SELECT run_id, slot, priority, state, ready_at_ms, until_ms FROM perdure_pending WHERE run_id = :run_id

-- name: put_off
-- Commits: a delayed run begins later, with another input.
UPDATE perdure_pending SET ready_at_ms = min(:ready_at_ms, until_ms)
WHERE run_id = :run_id AND state = 'delayed' AND until_ms IS NOT NULL
RETURNING run_id

-- name: change_input
-- Commits: the input of a run that has not begun.
UPDATE perdure_message SET payload = :payload WHERE run_id = :run_id AND guid = :guid
RETURNING guid

-- name: set_limit
-- Commits: an operator's values.
INSERT INTO perdure_limit_setting (kind, name, body, at_ms) VALUES (:kind, :name, :body, :at_ms)
ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body, at_ms = excluded.at_ms

-- name: reset_limit
-- Commits: the code's values hold again.
DELETE FROM perdure_limit_setting WHERE kind = :kind AND name = :name
RETURNING name

-- name: select_settings
SELECT kind, name, body, at_ms FROM perdure_limit_setting WHERE kind = :kind ORDER BY name

-- name: select_limits
-- Limits in the order of their slots, from one on: who holds and who waits for each, up to a number.
SELECT known.slot, known.rules, known.arrival_us,
       (SELECT count(*) FROM (SELECT 1 FROM perdure_run AS run
            WHERE run.slot = known.slot AND run.slot IS NOT NULL AND run.closed_at_ms IS NULL AND run.epoch IS NOT 0)),
       (SELECT count(*) FROM perdure_pending AS pending WHERE pending.slot = known.slot)
FROM perdure_limit_key AS known WHERE known.slot > :after AND (:name = '' OR known.name = :name)
ORDER BY known.slot LIMIT :limit

-- name: select_standing
SELECT known.slot, known.rules, known.arrival_us,
       (SELECT count(*) FROM perdure_run AS run
        WHERE run.slot = known.slot AND run.slot IS NOT NULL AND run.closed_at_ms IS NULL AND run.epoch IS NOT 0),
       (SELECT count(*) FROM perdure_pending AS pending WHERE pending.slot = known.slot), setting.body
FROM perdure_limit_key AS known
LEFT JOIN perdure_limit_setting AS setting ON setting.kind = 'limit' AND setting.name = known.name
WHERE known.slot = :slot
