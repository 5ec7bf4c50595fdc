-- Statements of the Postgres store for admission. Rows come as one array per column and are unnested.
-- A transaction locks the limits that it counts first, in the order of their slots: what it counts can't grow before it
-- commits. Then it inserts runs, in the order of their keys, and what waits for them.

-- name: know_limits
-- Commits: limits with the rules of the newest start.
-- Locks: the limits, in the order of the rows.
INSERT INTO perdure.limit_key (slot, name, rules, served, arrival_us)
SELECT column1, column2, column3, '', 0 FROM unnest($1::text[], $2::text[], $3::text[]) AS b (column1, column2, column3)
ON CONFLICT (slot) DO UPDATE SET rules = excluded.rules
RETURNING slot, rules, served, arrival_us,
          (SELECT body FROM perdure.limit_setting AS setting WHERE setting.kind = 'limit' AND setting.name = limit_key.name)

-- name: lock_limits
-- Locks: the limits, in the order of their slots.
SELECT known.slot, known.rules, known.served, known.arrival_us, setting.body
FROM perdure.limit_key AS known
LEFT JOIN perdure.limit_setting AS setting ON setting.kind = 'limit' AND setting.name = known.name
WHERE known.slot = ANY ($1::text[]) ORDER BY known.slot FOR NO KEY UPDATE OF known

-- name: charge_limits
-- Commits: which scope was served last, and when the rate has the next one due.
UPDATE perdure.limit_key AS known SET served = b.column2, arrival_us = b.column3
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS b (column1, column2, column3) WHERE known.slot = b.column1

-- name: count_slot
-- How many runs hold the slot, whether one is ready for it, and how many wait for it. Counts up to a number.
SELECT (SELECT count(*) FROM (SELECT 1 FROM perdure.run AS run
            WHERE run.slot = $1::text AND run.slot IS NOT NULL AND run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0 LIMIT $2::bigint) AS held),
       (SELECT count(*) FROM (SELECT 1 FROM perdure.pending WHERE slot = $1::text AND state = 'ready' LIMIT 1) AS ready),
       (SELECT count(*) FROM (SELECT 1 FROM perdure.pending WHERE slot = $1::text LIMIT $3::bigint) AS waiting)

-- name: select_holders
-- The open run that holds the slot longest, if one does; with its chain.
SELECT id, chain, owner FROM perdure.run
WHERE slot = $1::text AND slot IS NOT NULL AND closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0
  AND status <> 'cancelling' AND NOT EXISTS (
      SELECT 1 FROM perdure.message AS m WHERE m.run_id = run.id AND m.kind = 'cancel' AND m.state = 'pending')
ORDER BY id LIMIT 1

-- name: select_holder_to_join
SELECT id FROM perdure.run
WHERE slot = $1::text AND slot IS NOT NULL AND closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 ORDER BY id LIMIT 1

-- name: select_in_line
-- Runs that wait for a slot, the one that waits longest first.
SELECT run_id FROM perdure.pending WHERE slot = $1::text ORDER BY run_id LIMIT $2::bigint

-- name: hand_over_keys
-- Commits: runs that are over give their start keys to new ones, which are inserted next.
UPDATE perdure.run AS run SET replaced_by = b.column2
FROM unnest($1::text[], $2::text[]) AS b (column1, column2)
WHERE run.id = b.column1 AND run.replaced_by IS NULL AND run.closed_at_ms IS NOT NULL

-- name: add_runs
-- Commits: runs without entries. A key that is taken, or an id that exists, inserts nothing.
INSERT INTO perdure.run (id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status, created_at_ms, slot)
SELECT column1, column2, column3, column4, column5, column6, column7, column8, 0, column9, 0, 'pending', column10, column11
FROM
    unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bytea[], $10::bigint[], $11::text[])
        AS b (column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11)
ON CONFLICT DO NOTHING
RETURNING id

-- name: enrol_runs
-- Commits: new runs are to be published to buses, from their first entry on.
INSERT INTO perdure.publication (run_id, bus, holder, lease_until_ms, seq, replay)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[])
ON CONFLICT DO NOTHING

-- name: select_taken
-- The run that has the id or holds the key.
SELECT id FROM perdure.run WHERE id = $1::text
UNION ALL
SELECT id FROM perdure.run
WHERE key IS NOT NULL AND replaced_by IS NULL AND scope = $2::text AND program = $3::text AND key = $4::text
LIMIT 1

-- name: send
-- Commits: messages, once per GUID.
INSERT INTO perdure.message (run_id, guid, kind, payload, due_at_ms, arrival)
SELECT column1, column2, column3, column4, column5, column6 FROM
    unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[], $6::bigint[]) AS b (column1, column2, column3, column4, column5, column6)
ON CONFLICT (run_id, guid) DO NOTHING

-- name: wait_in_line
-- Commits: runs wait to be admitted.
INSERT INTO perdure.pending (run_id, slot, scope, program, priority, state, ready_at_ms, until_ms)
SELECT * FROM
    unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[])
        AS b (column1, column2, column3, column4, column5, column6, column7, column8)

-- name: tag_waiting
-- Commits: lists find waiting runs by their tags. The same rows as `hook` writes when the runs begin.
INSERT INTO perdure.hook (run_id, step, kind, mailbox, topic, key, since_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
ON CONFLICT (run_id, step, kind, mailbox) DO NOTHING

-- name: select_runs
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure.run WHERE id IN (SELECT column1 FROM unnest($1::text[]) AS b (column1)) ORDER BY id

-- name: end_delays
-- Commits: runs whose delay is over are ready.
UPDATE perdure.pending SET state = 'ready' WHERE run_id IN (
    SELECT run_id FROM perdure.pending
    WHERE state = 'delayed' AND ready_at_ms <= $1::bigint ORDER BY ready_at_ms, run_id LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED)
RETURNING slot

-- name: select_busy_slots
-- Steps from each slot for which a run is ready to the next.
WITH RECURSIVE found (slot, number) AS (
    SELECT (SELECT min(slot) FROM perdure.pending WHERE state = 'ready' AND slot > $1::text), 1
    UNION ALL
    SELECT (SELECT min(slot) FROM perdure.pending WHERE state = 'ready' AND slot > found.slot), number + 1
    FROM found WHERE slot IS NOT NULL AND number < $2::bigint
)
SELECT slot FROM found WHERE slot IS NOT NULL

-- name: select_line_scopes
-- Steps from each scope with a ready run to the next, from the one after the scope that was served last.
WITH RECURSIVE found (scope, number) AS (
    SELECT (SELECT min(scope) FROM perdure.pending WHERE state = 'ready' AND slot = $1::text AND scope > $2::text), 1
    UNION ALL
    SELECT (SELECT min(scope) FROM perdure.pending WHERE state = 'ready' AND slot = $1::text AND scope > found.scope), number + 1
    FROM found WHERE scope IS NOT NULL AND number < $3::bigint
)
SELECT scope FROM found WHERE scope IS NOT NULL

-- name: select_scopes
-- Steps from each scope with a ready run to the next, from the first one on.
WITH RECURSIVE found (scope, number) AS (
    SELECT (SELECT min(scope) FROM perdure.pending WHERE state = 'ready' AND slot = $1::text), 1
    UNION ALL
    SELECT (SELECT min(scope) FROM perdure.pending WHERE state = 'ready' AND slot = $1::text AND scope > found.scope), number + 1
    FROM found WHERE scope IS NOT NULL AND number < $2::bigint
)
SELECT scope FROM found WHERE scope IS NOT NULL

-- name: select_line
-- The next runs of a scope: the most urgent first, then the oldest.
SELECT run_id, program FROM perdure.pending
WHERE state = 'ready' AND slot = $1::text AND scope = $2::text ORDER BY priority DESC, run_id LIMIT $3::bigint

-- name: admit
-- Commits: pending runs have owners, under their first epoch. Each is admitted once.
UPDATE perdure.run AS run SET owner = b.column2, epoch = 1
FROM unnest($1::text[], $2::text[]) AS b (column1, column2)
WHERE run.id = b.column1 AND run.epoch = 0 AND run.closed_at_ms IS NULL
RETURNING run.id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
          created_at_ms, closed_at_ms, parked, chain

-- name: leave_line
-- Commits: runs do not wait to be admitted any more. Before `admit`, so that all lock a run's place before its row.
DELETE FROM perdure.pending WHERE run_id IN (SELECT column1 FROM unnest($1::text[]) AS b (column1))
RETURNING run_id, until_ms

-- name: forget_keys
-- Commits: runs that were debounced have no start key any more, so that a later start with it makes another run.
UPDATE perdure.run SET key = NULL WHERE id IN (SELECT column1 FROM unnest($1::text[]) AS b (column1)) AND epoch = 0

-- name: call_up
-- Commits: a pending run is ready at once and waits for no limit, so that its host takes in what ends it.
UPDATE perdure.pending SET state = 'ready', slot = '' WHERE run_id IN (SELECT column1 FROM unnest($1::text[]) AS b (column1))
RETURNING run_id

-- name: give_up_slots
-- Commits: pending runs will hold no slot.
UPDATE perdure.run SET slot = NULL WHERE id IN (SELECT column1 FROM unnest($1::text[]) AS b (column1)) AND epoch = 0

-- name: approve
-- Commits: a run that waited for approval is ready, or delayed.
UPDATE perdure.pending SET state = CASE WHEN ready_at_ms > $2::bigint THEN 'delayed' ELSE 'ready' END
WHERE run_id = $1::text AND state = 'waiting'
RETURNING slot

-- name: select_pending
SELECT run_id, slot, priority, state, ready_at_ms, until_ms FROM perdure.pending WHERE run_id = $1::text

-- name: put_off
-- Commits: a delayed run begins later, with another input.
UPDATE perdure.pending SET ready_at_ms = least($2::bigint, until_ms)
WHERE run_id = $1::text AND state = 'delayed' AND until_ms IS NOT NULL
RETURNING run_id

-- name: change_input
-- Commits: the input of a run that has not begun.
UPDATE perdure.message SET payload = $3::bytea WHERE run_id = $1::text AND guid = $2::text
RETURNING guid

-- name: set_limit
-- Commits: an operator's values.
INSERT INTO perdure.limit_setting (kind, name, body, at_ms) VALUES ($1::text, $2::text, $3::text, $4::bigint)
ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body, at_ms = excluded.at_ms

-- name: reset_limit
-- Commits: the code's values hold again.
DELETE FROM perdure.limit_setting WHERE kind = $1::text AND name = $2::text
RETURNING name

-- name: select_settings
SELECT kind, name, body, at_ms FROM perdure.limit_setting WHERE kind = $1::text ORDER BY name

-- name: select_limits
-- Limits in the order of their slots, from one on: who holds and who waits for each, up to a number.
SELECT known.slot, known.rules, known.arrival_us,
       (SELECT count(*) FROM (SELECT 1 FROM perdure.run AS run
            WHERE run.slot = known.slot AND run.slot IS NOT NULL AND run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0) AS held),
       (SELECT count(*) FROM perdure.pending AS pending WHERE pending.slot = known.slot)
FROM perdure.limit_key AS known WHERE known.slot > $1::text AND ($2::text = '' OR known.name = $2::text)
ORDER BY known.slot LIMIT $3::bigint

-- name: select_standing
SELECT known.slot, known.rules, known.arrival_us,
       (SELECT count(*) FROM perdure.run AS run
        WHERE run.slot = known.slot AND run.slot IS NOT NULL AND run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0),
       (SELECT count(*) FROM perdure.pending AS pending WHERE pending.slot = known.slot), setting.body
FROM perdure.limit_key AS known
LEFT JOIN perdure.limit_setting AS setting ON setting.kind = 'limit' AND setting.name = known.name
WHERE known.slot = $1::text
