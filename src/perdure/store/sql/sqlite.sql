-- Statements of the SQLite store. `:rows` stands for as many rows of parameters as there are.
-- A write transaction is BEGIN IMMEDIATE: it holds the file's one write lock from the first statement.

-- name: hand_over_keys
-- Commits: runs that are over give their start keys to new ones, which `create_runs` inserts next. Of a run that has
-- given its key away already, nothing changes, and `create_runs` finds the key taken.
UPDATE perdure_run AS run SET replaced_by = b.column2
FROM (VALUES :rows) AS b
WHERE run.id = b.column1 AND run.replaced_by IS NULL AND run.closed_at_ms IS NOT NULL

-- name: create_runs
-- Commits: new runs. A key that is taken, or an id that exists, inserts nothing: the count of rows shows that.
INSERT INTO perdure_run (id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
                         created_at_ms, closed_at_ms, chain, parent, forked_from, slot)
VALUES :rows
ON CONFLICT DO NOTHING

-- name: advance_runs
-- Commits: sequence, head, semaphore and status, only where the fence holds and the decision was made on
-- what the row says. A row with a NULL head changes nothing and only checks the epoch.
UPDATE perdure_run AS run
SET seq = coalesce(b.column5, run.seq), head = coalesce(b.column6, run.head),
    semaphore = coalesce(b.column7, run.semaphore), status = coalesce(b.column8, run.status)
FROM (VALUES :rows) AS b
WHERE run.id = b.column1 AND run.epoch = b.column2
  AND (b.column3 IS NULL OR (run.head = b.column3 AND run.semaphore = b.column4))

-- name: close_runs
-- Commits: the time at which runs ended. They have no owner from then on: any host may settle messages that
-- arrive later. A statement of its own, because `advance_runs` touches no index.
UPDATE perdure_run AS run SET closed_at_ms = b.column2, owner = NULL
FROM (VALUES :rows) AS b WHERE run.id = b.column1

-- name: park_runs
-- Commits: why runs are parked, or that they are not any more. `advance_runs` has checked their fences.
UPDATE perdure_run AS run SET parked = b.column2
FROM (VALUES :rows) AS b WHERE run.id = b.column1

-- name: blame_runs
-- Commits: the fingerprints of the errors with which runs failed. `advance_runs` has checked their fences.
UPDATE perdure_run AS run SET error = b.column2
FROM (VALUES :rows) AS b WHERE run.id = b.column1

-- name: append_events
-- Commits: entries. The primary key refuses a second entry at the same place.
INSERT INTO perdure_event (run_id, seq, at_ms, body, prev, sealed, erased)
VALUES :rows

-- name: post
-- Commits: postings, summed per account.
INSERT INTO perdure_ledger (run_id, account, balance)
VALUES :rows
ON CONFLICT (run_id, account) DO UPDATE SET balance = balance + excluded.balance

-- name: enqueue
-- Commits: messages, once per GUID. A message that is due at once arrives after all pending messages that were first
-- sent to the same run or mailbox, which its GUID names. The eighth value numbers such messages of one group.
INSERT INTO perdure_message (run_id, guid, kind, step, payload, due_at_ms, arrival)
SELECT b.column1, b.column2, b.column3, b.column4, b.column5, b.column6,
       CASE WHEN b.column6 <> 0 THEN b.column7 ELSE max(b.column7, b.column8 + coalesce((
           SELECT m.arrival FROM perdure_message AS m INDEXED BY perdure_message_order
           WHERE substr(m.guid, 1, 34) = substr(b.column2, 1, 34) AND m.state = 'pending' AND m.due_at_ms = 0
           ORDER BY m.arrival DESC LIMIT 1), 0)) END
FROM (VALUES :rows) AS b
WHERE true
ON CONFLICT (run_id, guid) DO NOTHING

-- name: forward
-- Commits: pending messages, under their GUIDs, to other runs. A message that is there already stays. With a step: only
-- messages for that step are forwarded, and concern no step from then on. `forget` deletes them at the former run.
INSERT INTO perdure_message (run_id, guid, kind, step, payload, due_at_ms, arrival)
SELECT b.column3, m.guid, m.kind, CASE WHEN b.column4 IS NULL THEN m.step END, m.payload, m.due_at_ms, m.arrival
FROM (VALUES :rows) AS b CROSS JOIN perdure_message AS m ON m.run_id = b.column1 AND m.guid = b.column2
WHERE m.state = 'pending' AND (b.column4 IS NULL OR m.step = b.column4)
ON CONFLICT (run_id, guid) DO NOTHING

-- name: forget
-- Commits: the messages that `forward` has forwarded are deleted at the former run.
DELETE FROM perdure_message WHERE (run_id, guid) IN (
    SELECT m.run_id, m.guid
    FROM (VALUES :rows) AS b CROSS JOIN perdure_message AS m ON m.run_id = b.column1 AND m.guid = b.column2
    WHERE m.state = 'pending' AND (b.column4 IS NULL OR m.step = b.column4)
)

-- name: acknowledge
-- Commits: messages are deleted, because their runs have recorded them.
DELETE FROM perdure_message WHERE (run_id, guid) IN (VALUES :rows)

-- name: mark
-- Commits: messages are not delivered any more, and why.
UPDATE perdure_message AS message
SET state = b.column3, reason = b.column4
FROM (VALUES :rows) AS b
WHERE message.run_id = b.column1 AND message.guid = b.column2

-- name: put_work
-- Commits: tasks on their queues, once per step.
INSERT INTO perdure_work (run_id, step, guid, queue, priority, payload, available_at_ms)
VALUES :rows
ON CONFLICT (run_id, step) DO NOTHING

-- name: hold_work
-- Commits: the tasks of runs that are paused are held, so that no host claims them; or they are no longer held. Claims
-- under way keep their tokens.
UPDATE perdure_work AS work SET held = b.column2 FROM (VALUES :rows) AS b WHERE work.run_id = b.column1

-- name: park_steps
-- Commits: steps wait for an operator, so that lists find them. Their entries say the same.
INSERT INTO perdure_parked_step (run_id, step, task, error, since_ms)
VALUES :rows
ON CONFLICT (run_id, step) DO UPDATE SET error = excluded.error, since_ms = excluded.since_ms

-- name: enrol_runs
-- Commits: new runs are to be published to buses, from their first entry on.
INSERT INTO perdure_publication (run_id, bus, holder, lease_until_ms, seq, replay)
VALUES :rows
ON CONFLICT DO NOTHING

-- name: unpark_steps
-- Commits: steps no longer wait for an operator.
DELETE FROM perdure_parked_step WHERE (run_id, step) IN (VALUES :rows)

-- name: finish_work
-- Commits: tasks are off their queues, only by the token of the last claim: the count of rows shows that.
DELETE FROM perdure_work WHERE (run_id, step, token) IN (VALUES :rows)

-- name: drop_work
-- Commits: tasks are off their queues, claimed or not.
DELETE FROM perdure_work WHERE (run_id, step) IN (VALUES :rows)

-- name: publish
-- Commits: values replace the stored ones, whatever the clocks say. The time of a name never goes back.
INSERT INTO perdure_published (run_id, name, payload, at_ms)
VALUES :rows
ON CONFLICT (run_id, name) DO UPDATE SET payload = excluded.payload, at_ms = max(excluded.at_ms, at_ms)

-- name: publish_by
-- Commits: as `publish`, but a host's values only if it owns the run or has claimed the named step: a run that is over
-- has no owner, and its tasks are off their queues.
INSERT INTO perdure_published (run_id, name, payload, at_ms)
SELECT column1, column2, column3, column4 FROM (VALUES :rows)
WHERE column5 IS NULL
   OR (column6 IS NULL AND EXISTS (SELECT 1 FROM perdure_run WHERE id = column1 AND owner = column5))
   OR EXISTS (SELECT 1 FROM perdure_work WHERE run_id = column1 AND step = column6 AND host = column5)
ON CONFLICT (run_id, name) DO UPDATE SET payload = excluded.payload, at_ms = max(excluded.at_ms, at_ms)

-- name: publish_again
-- Commits: as `publish_by`, for values that a host has sent before. They replace older values only.
INSERT INTO perdure_published (run_id, name, payload, at_ms)
SELECT column1, column2, column3, column4 FROM (VALUES :rows)
WHERE column5 IS NULL
   OR (column6 IS NULL AND EXISTS (SELECT 1 FROM perdure_run WHERE id = column1 AND owner = column5))
   OR EXISTS (SELECT 1 FROM perdure_work WHERE run_id = column1 AND step = column6 AND host = column5)
ON CONFLICT (run_id, name) DO UPDATE SET payload = excluded.payload, at_ms = excluded.at_ms
WHERE excluded.at_ms > at_ms

-- name: grow_streams
-- Commits: the given number of positions more at the end of each stream, only of open runs. Returns the new lengths:
-- the count of rows shows what was refused. The bundle in which a run appends itself may also end it.
INSERT INTO perdure_stream (run_id, name, length)
SELECT column1, column2, column3 FROM (VALUES :rows)
WHERE column4 OR EXISTS (SELECT 1 FROM perdure_run WHERE id = column1 AND closed_at_ms IS NULL)
ON CONFLICT (run_id, name) DO UPDATE SET length = length + excluded.length
RETURNING run_id, name, length

-- name: append_chunks
-- Commits: chunks at their positions. A chunk that is stored already inserts nothing: the count of rows shows that.
INSERT INTO perdure_chunk (run_id, name, position, step, attempt, claim, number, payload, at_ms)
VALUES :rows
ON CONFLICT (run_id, name, step, attempt, claim, number) DO NOTHING

-- name: claim_work
-- Commits: a token and a lease on tasks of one queue that are due, not held and under no lease.
-- A host that claims its own task again does not count: it knows whether it has begun it.
-- Through the index in its order, so that a claim costs by what it takes and not by what waits.
UPDATE perdure_work
SET token = :token, host = :host, available_at_ms = :lease_until_ms, claims = claims + (host IS NOT :host)
WHERE (run_id, step) IN (
    SELECT run_id, step FROM perdure_work
    WHERE queue = :queue AND held = 0 AND available_at_ms <= :now_ms
    ORDER BY priority DESC, available_at_ms, run_id, step
    LIMIT :limit
)
RETURNING run_id, step, guid, queue, available_at_ms, priority, payload, token, claims,
          (SELECT CAST(owner AS BLOB) FROM perdure_run WHERE id = run_id)

-- name: renew_work
-- Commits: a longer lease, for those tasks that still have the token.
UPDATE perdure_work SET available_at_ms = :lease_until_ms
WHERE (run_id, step, token) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:claims))
RETURNING run_id, step

-- name: regain_work
-- Commits: claims hold again, with their tokens, where the task was put back and no other host has claimed it since.
-- The claim is the same, so it is not counted again; a repeated statement changes nothing.
UPDATE perdure_work AS work SET token = b.value ->> 2, host = :host, available_at_ms = :lease_until_ms
FROM json_each(:claims) AS b
WHERE work.run_id = b.value ->> 0 AND work.step = b.value ->> 1
  AND (work.token IS NULL OR work.token = b.value ->> 2) AND work.guid = b.value ->> 3 AND work.claims = b.value ->> 4
RETURNING run_id, step

-- name: return_work
-- Commits: a host's claimed tasks are due again, under no token.
UPDATE perdure_work SET token = NULL, host = NULL, available_at_ms = :now_ms WHERE host = :host

-- name: return_claims
-- Commits: tasks are due at the given time, under no token, where they still have the token of the claim.
-- The tasks are unstarted, so the claim does not count.
UPDATE perdure_work AS work SET token = NULL, host = NULL, available_at_ms = b.column4, claims = claims - 1
FROM (VALUES :rows) AS b
WHERE work.run_id = b.column1 AND work.step = b.column2 AND work.token = b.column3

-- name: return_stopped
-- Commits: tasks are due, under no token, with another payload, where they still have the token of the claim.
UPDATE perdure_work AS work SET token = NULL, host = NULL, available_at_ms = b.column4, payload = b.column5
FROM (VALUES :rows) AS b
WHERE work.run_id = b.column1 AND work.step = b.column2 AND work.token = b.column3

-- name: claim_runs
-- Commits: ownership of open runs that have no owner, oldest first, each under a new epoch. NULL programs are all.
UPDATE perdure_run SET owner = :owner, epoch = epoch + 1
WHERE id IN (
    SELECT id FROM perdure_run
    WHERE owner IS NULL AND closed_at_ms IS NULL AND epoch IS NOT 0
      AND (:programs IS NULL OR program IN (SELECT value FROM json_each(:programs)))
    ORDER BY id LIMIT :limit
)
RETURNING id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
          created_at_ms, closed_at_ms, parked, chain

-- name: take_over
-- Commits: ownership of another owner's open runs, each under a new epoch, which fences the old owner out.
UPDATE perdure_run SET owner = :owner, epoch = epoch + 1
WHERE id IN (
    SELECT id FROM perdure_run WHERE owner = :from_owner AND closed_at_ms IS NULL AND epoch IS NOT 0 ORDER BY id LIMIT :limit
)
RETURNING id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
          created_at_ms, closed_at_ms, parked, chain

-- name: take_run
-- Commits: ownership of one open run of another owner, or of none, under a new epoch, which fences the old owner out.
UPDATE perdure_run SET owner = :owner, epoch = epoch + 1
WHERE id = :run_id AND owner IS :from_owner AND closed_at_ms IS NULL AND epoch IS NOT 0
RETURNING id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
          created_at_ms, closed_at_ms, parked, chain

-- name: release_run
-- Commits: the run has no owner, under a new epoch; only by the owner of this epoch.
UPDATE perdure_run SET owner = NULL, epoch = epoch + 1 WHERE id = :run_id AND epoch = :epoch

-- name: release_runs
-- Commits: an owner's open runs have none, each under a new epoch, which fences the owner out.
UPDATE perdure_run SET owner = NULL, epoch = epoch + 1 WHERE owner = :owner AND closed_at_ms IS NULL AND epoch IS NOT 0

-- name: erase_payload
-- Commits: a digest replaces the payload, so that the chain still verifies.
UPDATE perdure_event SET sealed = NULL, erased = :digest
WHERE run_id = :run_id AND seq = :seq AND sealed IS NOT NULL

-- name: select_run
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure_run WHERE id = :run_id

-- name: select_run_as_bytes
-- The same, of a row whose text may be damaged.
SELECT id, CAST(scope AS BLOB), CAST(program AS BLOB), CAST(version AS BLOB), CAST(digest AS BLOB), CAST(key AS BLOB),
       CAST(owner AS BLOB), epoch, seq, head, semaphore, CAST(status AS BLOB),
       created_at_ms, closed_at_ms, CAST(parked AS BLOB), CAST(chain AS BLOB)
FROM perdure_run WHERE id = :run_id

-- name: select_runs_by_id
SELECT id, epoch, head, semaphore FROM perdure_run WHERE id IN (SELECT value FROM json_each(:ids))

-- name: select_run_by_key
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure_run WHERE scope = :scope AND program = :program AND key = :key AND replaced_by IS NULL

-- name: select_key_holders
-- The runs that have these keys, through the index of keys.
SELECT scope, program, key, id FROM perdure_run
WHERE key IS NOT NULL AND replaced_by IS NULL
  AND (scope, program, key) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:places))

-- name: select_chain_end
-- The last run of a chain, by its index: later runs sort later.
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure_run
WHERE id = coalesce((SELECT max(id) FROM perdure_run WHERE chain = :first), :first)

-- name: select_chain
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure_run WHERE id = :first OR chain = :first ORDER BY id

-- name: select_chain_accounts
-- Which of these accounts any run of a chain has.
SELECT DISTINCT account FROM perdure_ledger
WHERE account IN (SELECT value FROM json_each(:accounts))
  AND run_id IN (SELECT id FROM perdure_run WHERE id = :first OR chain = :first)

-- name: select_sent
-- A message by its GUID: where it is pending or marked, with its payload; and which runs have recorded it. Of the chain
-- that begins with a run, or of a mailbox, which is no run.
SELECT run_id, payload, 0 FROM perdure_message
WHERE guid = :guid AND run_id IN (SELECT :first UNION ALL SELECT id FROM perdure_run WHERE chain = :first)
UNION ALL
SELECT run_id, NULL, 1 FROM perdure_ledger
WHERE account = :account AND run_id IN (SELECT :first UNION ALL SELECT id FROM perdure_run WHERE chain = :first)

-- name: select_chain_published
-- What a chain has published, older values first: a run publishes nothing once it is continued, and later runs sort later.
SELECT name, payload FROM perdure_published
WHERE run_id IN (SELECT id FROM perdure_run WHERE id = :first OR chain = :first)
ORDER BY run_id

-- name: select_open_runs
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure_run
WHERE closed_at_ms IS NULL AND epoch IS NOT 0 AND owner IS :owner AND id > :after
ORDER BY id LIMIT :limit

-- name: select_open_ids
-- Of all owners: an owner may change between two pages, an id does not. NULL programs are all.
SELECT id FROM perdure_run
WHERE closed_at_ms IS NULL AND epoch IS NOT 0 AND id > :after
  AND (:programs IS NULL OR program IN (SELECT value FROM json_each(:programs)))
ORDER BY id LIMIT :limit

-- name: select_runs
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure_run WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id

-- name: select_progress
-- How far these runs are, for callers that wait for them: their rows, the number of chunks in their streams, and the last
-- entries of those that are over.
SELECT run.id, run.scope, run.program, run.version, run.digest, run.key, run.owner, run.epoch, run.seq, run.head, run.semaphore,
       run.status, run.created_at_ms, run.closed_at_ms, run.parked, run.chain,
       (SELECT coalesce(sum(length), 0) FROM perdure_stream WHERE run_id = run.id),
       last.seq, last.at_ms, last.body, last.prev, last.sealed, last.erased
FROM perdure_run AS run
LEFT JOIN perdure_event AS last
  ON run.closed_at_ms IS NOT NULL AND last.run_id = run.id AND last.seq = run.seq - 1
WHERE run.id IN (SELECT value FROM json_each(:ids))

-- name: select_journals
SELECT run_id, seq, at_ms, body, prev, sealed, erased FROM perdure_event
WHERE run_id IN (SELECT value FROM json_each(:ids)) ORDER BY run_id, seq

-- name: select_ledgers
SELECT run_id, account, balance FROM perdure_ledger WHERE run_id IN (SELECT value FROM json_each(:ids))

-- name: select_step_messages
-- Messages that concern a step of these runs: timers, retries, results, and signals that matched a hook. A damaged row
-- may have lost its step.
SELECT run_id, guid, step, state, kind, due_at_ms, coalesce(length(payload), 0) > 0 FROM perdure_message
WHERE run_id IN (SELECT value FROM json_each(:ids)) AND (step IS NOT NULL OR kind NOT LIKE 'signal:%' AND kind NOT LIKE 'cancel%' AND kind NOT LIKE 'act:%')

-- name: select_sent_messages
-- Signals, cancels and acts to this run that concern no step: no entry of its journal demands them.
SELECT run_id, guid, step, state, kind, due_at_ms, coalesce(length(payload), 0) > 0 FROM perdure_message
WHERE run_id = :run_id AND step IS NULL AND (kind LIKE 'signal:%' OR kind LIKE 'cancel%' OR kind LIKE 'act:%')

-- name: select_queued
-- Which steps of these runs are on which queues since when, which hosts have claimed them, the GUIDs of their results,
-- and the first bytes of their payloads: 8192 are reserved for the header.
SELECT run_id, step, guid, queue, available_at_ms, host, substr(payload, 1, 8192) FROM perdure_work
WHERE run_id IN (SELECT value FROM json_each(:ids))

-- name: select_entries
SELECT seq, at_ms, body, prev, sealed, erased FROM perdure_event
WHERE run_id = :run_id AND seq >= :first AND seq < :end ORDER BY seq

-- name: select_grown
-- Entries of several journals: of each run those from the first number to before the second. By the journal's key for
-- each run, so that a read costs by what it returns.
SELECT event.run_id, event.seq, event.at_ms, event.body, event.prev, event.sealed, event.erased
FROM json_each(:parts) AS part CROSS JOIN perdure_event AS event
  ON event.run_id = json_extract(part.value, '$[0]')
  AND event.seq >= json_extract(part.value, '$[1]') AND event.seq < json_extract(part.value, '$[2]')
ORDER BY event.run_id, event.seq

-- name: select_all_entries
-- For inspection: all rows, whether or not they are valid entries.
SELECT seq, at_ms, CAST(body AS BLOB), prev, sealed, erased FROM perdure_event
WHERE run_id = :run_id ORDER BY seq

-- name: select_balance
SELECT balance FROM perdure_ledger WHERE run_id = :run_id AND account = :account

-- name: select_balances
SELECT account, balance FROM perdure_ledger WHERE run_id = :run_id

-- name: select_due_messages
-- Level-triggered: every message that is pending, due, and addressed to a run of this owner or a closed run. A run that
-- is parked or paused takes only cancels and acts, and an unowned run takes nothing before a host claims it: other
-- messages to it stay due, and would take the places of those that can be delivered. Messages that are due at once go
-- before timers: they were durable before the timers ended.
-- By the message's index and then its run, whatever statistics say, and in the order of that index, so that a read costs
-- by what it returns and not by what is due.
SELECT m.run_id, m.guid, m.kind, m.due_at_ms, m.arrival, m.step, m.payload
FROM perdure_message AS m INDEXED BY perdure_message_due CROSS JOIN perdure_run AS run ON run.id = m.run_id
WHERE m.state = 'pending' AND m.due_at_ms <= :now_ms
  AND (run.owner = :owner OR run.owner IS NULL AND run.closed_at_ms IS NOT NULL)
  AND (run.parked IS NULL AND run.status <> 'paused' OR m.kind LIKE 'cancel%' OR m.kind LIKE 'act:%')
ORDER BY m.due_at_ms, m.arrival LIMIT :limit

-- name: select_pending
-- Messages that are pending and due at once, first sent to the given runs or mailboxes (with which GUIDs begin), and
-- addressed to a run of this owner or an unowned run. Through the index of arrivals, for each of them.
SELECT m.run_id, m.guid, m.kind, m.due_at_ms, m.arrival, m.step, m.payload
FROM json_each(:origins) AS origin
CROSS JOIN perdure_message AS m INDEXED BY perdure_message_order ON substr(m.guid, 1, 34) = origin.value
CROSS JOIN perdure_run AS run ON run.id = m.run_id
WHERE m.state = 'pending' AND m.due_at_ms = 0 AND (run.owner = :owner OR run.owner IS NULL)
  AND (run.parked IS NULL AND run.status <> 'paused' OR m.kind LIKE 'cancel%' OR m.kind LIKE 'act:%')
ORDER BY m.arrival, m.guid LIMIT :limit

-- name: select_next_due
-- When the next message is due that `select_due_messages` will find, if that is before the given time: later messages
-- may be other hosts'.
SELECT m.due_at_ms
FROM perdure_message AS m INDEXED BY perdure_message_due CROSS JOIN perdure_run AS run ON run.id = m.run_id
WHERE m.state = 'pending' AND m.due_at_ms <= :until_ms
  AND (run.owner = :owner OR run.owner IS NULL AND run.closed_at_ms IS NOT NULL)
  AND (run.parked IS NULL AND run.status <> 'paused' OR m.kind LIKE 'cancel%' OR m.kind LIKE 'act:%')
ORDER BY m.due_at_ms LIMIT 1

-- name: select_messages
SELECT run_id, guid, kind, due_at_ms, arrival, step, payload, state, reason
FROM perdure_message WHERE run_id = :run_id ORDER BY arrival, guid

-- name: select_acts
-- The acts that were sent to a run, without what they say. Acknowledged ones are deleted.
SELECT guid, state, reason FROM perdure_message WHERE run_id = :run_id AND kind LIKE 'act:%' ORDER BY arrival, guid

-- name: select_queued_work
SELECT step, queue, host FROM perdure_work WHERE run_id = :run_id ORDER BY step

-- name: select_statuses
SELECT id, status FROM perdure_run WHERE id IN (SELECT value FROM json_each(:run_ids)) ORDER BY id

-- name: select_published
SELECT name, payload FROM perdure_published WHERE run_id = :run_id ORDER BY name

-- name: select_streams
SELECT name, length FROM perdure_stream WHERE run_id = :run_id ORDER BY name

-- name: select_chunks
SELECT position, step, attempt, claim, payload, at_ms FROM perdure_chunk
WHERE run_id = :run_id AND name = :name AND position >= :first ORDER BY position LIMIT :limit

-- name: select_spans
-- Numbers grow with positions, so their difference is the same within a span. By the index that holds no payloads.
SELECT step, attempt, claim, min(position), max(position) FROM perdure_chunk INDEXED BY perdure_chunk_number
WHERE run_id = :run_id AND name = :name AND position < :end
GROUP BY step, attempt, claim, position - number ORDER BY min(position)

-- name: select_closing_times
-- When each of these runs ended.
SELECT id, closed_at_ms FROM perdure_run JOIN (VALUES :rows) AS b ON id = b.column1

-- name: select_known_chunks
-- Which of these chunks are stored already.
SELECT run_id, name, step, attempt, claim, number FROM perdure_chunk
WHERE (run_id, name, step, attempt, claim, number) IN (VALUES :rows)

-- name: select_next_work
-- Steps through the index from each priority of a queue to the next, so the cost grows with priorities, not with tasks.
WITH RECURSIVE level (queue, priority) AS (
    SELECT value, (SELECT max(priority) FROM perdure_work WHERE queue = value AND held = 0) FROM json_each(:queues)
    UNION ALL
    SELECT queue, (SELECT max(work.priority) FROM perdure_work AS work
                   WHERE work.held = 0 AND work.queue = level.queue AND work.priority < level.priority)
    FROM level WHERE priority IS NOT NULL
)
SELECT min((SELECT min(available_at_ms) FROM perdure_work AS work
            WHERE work.held = 0 AND work.queue = level.queue AND work.priority = level.priority))
FROM level

-- name: select_next_run_id
-- The next run of which the journal or the ledger has a row, whether or not the run itself exists.
SELECT min(id) FROM (
    SELECT min(id) AS id FROM perdure_run WHERE id > :after
    UNION ALL SELECT min(run_id) FROM perdure_event WHERE run_id > :after
    UNION ALL SELECT min(run_id) FROM perdure_ledger WHERE run_id > :after
)

-- name: select_last_run_id
-- The last run of which the journal or the ledger has a row; '' if there is none.
SELECT coalesce(max(id), '') FROM (
    SELECT max(id) AS id FROM perdure_run
    UNION ALL SELECT max(run_id) FROM perdure_event
    UNION ALL SELECT max(run_id) FROM perdure_ledger
)

-- name: register_host
-- Commits: a host. Registering again after an unknown outcome changes nothing.
INSERT INTO perdure_host (id, beat, stale_after_ms, queues, started_at_ms)
VALUES (:host, 0, :stale_after_ms, :queues, :started_at_ms)
ON CONFLICT (id) DO NOTHING

-- name: remove_host
-- Commits: the host has no row; runs that it still owns and tasks that it still claims are a dead host's.
DELETE FROM perdure_host WHERE id = :host

-- name: count_open_of
-- How many open runs each of these hosts has, up to a number.
SELECT value, (SELECT count(*) FROM (
    SELECT 1 FROM perdure_run WHERE closed_at_ms IS NULL AND epoch IS NOT 0 AND owner = value LIMIT :most
)) FROM json_each(:owners)

-- name: count_open
SELECT count(*) FROM perdure_run WHERE closed_at_ms IS NULL AND epoch IS NOT 0 AND owner IS :owner

-- name: beat
-- Commits: a host's next heartbeat. Returns its snapshot, or nothing if it has no row.
UPDATE perdure_host SET beat = beat + 1 WHERE id = :host RETURNING :host_snapshot

-- name: host_snapshot
-- What a host needs to know, in one snapshot: all hosts; owners of open runs and claimants of work; whether there are
-- unowned runs for it; when the next message and the next work are due; whether a signal may match a hook; a number that
-- grows with each version that is deployed or activated; when a schedule is due next; when a waiting run may begin; the time, by the server's clock if
-- there is one; the version of the schema. Uses the indexes of `claim_runs`, `select_next_due` and `select_next_work`, and steps from each owner or
-- claimant to the next, so the cost grows with hosts, not with runs or work.
SELECT
(SELECT json_group_array(json_array(id, beat, stale_after_ms)) FROM perdure_host),
(WITH RECURSIVE found (owner) AS (
    SELECT min(owner) FROM perdure_run WHERE closed_at_ms IS NULL AND epoch IS NOT 0 AND owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(owner) FROM perdure_run WHERE closed_at_ms IS NULL AND epoch IS NOT 0 AND owner > found.owner)
    FROM found WHERE owner IS NOT NULL
 )
 SELECT CAST(json_group_array(owner) AS BLOB) FROM found WHERE owner IS NOT NULL),
(WITH RECURSIVE found (host) AS (
    SELECT min(host) FROM perdure_work WHERE host IS NOT NULL
    UNION ALL
    SELECT (SELECT min(host) FROM perdure_work WHERE host > found.host)
    FROM found WHERE host IS NOT NULL
 )
 SELECT json_group_array(host) FROM found WHERE host IS NOT NULL),
EXISTS (SELECT 1 FROM perdure_run INDEXED BY perdure_run_unowned WHERE owner IS NULL AND closed_at_ms IS NULL AND epoch IS NOT 0
          AND program IN (SELECT value FROM json_each(:programs))),
(SELECT m.due_at_ms
 FROM perdure_message AS m INDEXED BY perdure_message_due CROSS JOIN perdure_run AS run ON run.id = m.run_id
 WHERE m.state = 'pending' AND m.due_at_ms <= :until_ms
   AND (run.owner = :host OR run.owner IS NULL AND run.closed_at_ms IS NOT NULL)
   AND (run.parked IS NULL AND run.status <> 'paused' OR m.kind LIKE 'cancel%' OR m.kind LIKE 'act:%')
 ORDER BY m.due_at_ms LIMIT 1),
(WITH RECURSIVE level (queue, priority) AS (
    SELECT value, (SELECT max(priority) FROM perdure_work WHERE queue = value AND held = 0) FROM json_each(:queues)
    UNION ALL
    SELECT queue, (SELECT max(work.priority) FROM perdure_work AS work
                   WHERE work.held = 0 AND work.queue = level.queue AND work.priority < level.priority)
    FROM level WHERE priority IS NOT NULL
 )
 SELECT min((SELECT min(available_at_ms) FROM perdure_work AS work
             WHERE work.held = 0 AND work.queue = level.queue AND work.priority = level.priority))
 FROM level),
EXISTS (SELECT 1 FROM perdure_message AS m INDEXED BY perdure_message_due
        WHERE m.state = 'pending' AND m.due_at_ms <= :until_ms
          AND EXISTS (SELECT 1 FROM perdure_hook AS hook CROSS JOIN perdure_run AS run ON run.id = hook.run_id
                      WHERE hook.mailbox = m.run_id AND hook.kind = 'wait' AND run.closed_at_ms IS NULL)),
(SELECT count(*) + coalesce(sum(activations), 0) FROM perdure_program),
(SELECT min(look_at_ms) FROM perdure_schedule INDEXED BY perdure_schedule_due
 WHERE look_at_ms <= :until_ms AND program IN (SELECT value FROM json_each(:programs))),
CASE WHEN EXISTS (SELECT 1 FROM perdure_pending WHERE state = 'ready') THEN 0
     ELSE (SELECT min(ready_at_ms) FROM perdure_pending WHERE state = 'delayed' AND ready_at_ms <= :until_ms) END,
NULL,
(SELECT value FROM perdure_meta WHERE key = 'schema_version')

-- name: select_list_columns
-- Columns by which lists find a run, and whether it waits to be admitted.
SELECT parent, forked_from, error, slot, EXISTS (SELECT 1 FROM perdure_pending WHERE run_id = :run_id)
FROM perdure_run WHERE id = :run_id

-- name: select_tags
-- Tags and search keys of a run.
SELECT topic, key FROM perdure_hook WHERE run_id = :run_id AND kind = 'key'

-- name: select_parked_steps
-- Steps of a run that wait for an operator.
SELECT step FROM perdure_parked_step WHERE run_id = :run_id
