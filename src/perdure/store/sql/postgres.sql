-- Statements of the Postgres store. Rows come as one array per column and are unnested, so that a
-- group costs one statement per table.

-- name: hand_over_keys
-- Commits: runs that are over give their start keys to new ones, which `create_runs` inserts next. Of a run that has
-- given its key away already, nothing changes, and `create_runs` finds the key taken.
-- Locks: the old runs' rows, in the order of their keys.
UPDATE perdure.run AS run SET replaced_by = b.replaced_by
FROM (
    SELECT locked.id, b.replaced_by
    FROM unnest($1::text[], $2::text[]) AS b (id, replaced_by)
    JOIN perdure.run AS locked ON locked.id = b.id
    ORDER BY locked.key FOR NO KEY UPDATE OF locked
) AS b
WHERE run.id = b.id AND run.replaced_by IS NULL AND run.closed_at_ms IS NOT NULL

-- name: create_runs
-- Commits: new runs. A key that is taken, or an id that exists, inserts nothing: the count of rows shows that.
INSERT INTO perdure.run (id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
                         created_at_ms, closed_at_ms, chain, parent, forked_from, slot)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                     $8::bigint[], $9::bigint[], $10::bytea[], $11::bigint[], $12::text[], $13::bigint[],
                     $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[])
ON CONFLICT DO NOTHING

-- name: advance_runs
-- Commits: sequence, head, semaphore and status, only where the fence holds and the decision was made on
-- what the row says. A row with a NULL head changes nothing and only checks the epoch.
-- Locks: the run rows, in the order of ids, so that two groups can't wait for each other.
UPDATE perdure.run AS run
SET seq = coalesce(b.seq, run.seq), head = coalesce(b.head, run.head),
    semaphore = coalesce(b.semaphore, run.semaphore), status = coalesce(b.status, run.status)
FROM (
    SELECT locked.id, b.seq, b.head, b.semaphore, b.status
    FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[],
                $8::text[])
             AS b (id, epoch, head_before, semaphore_before, seq, head, semaphore, status)
    JOIN perdure.run AS locked
      ON locked.id = b.id AND locked.epoch = b.epoch
     AND (b.head_before IS NULL
          OR (locked.head = b.head_before AND locked.semaphore = b.semaphore_before))
    ORDER BY locked.id FOR NO KEY UPDATE OF locked
) AS b
WHERE run.id = b.id

-- name: end_runs
-- Commits: what `advance_runs` commits, for groups in which runs end, and for those that end what `close_runs` commits:
-- a row whose status changes gets new entries in all indexes, and in one statement it does so once.
-- Locks: the run rows, in the order of ids, also against appends to their streams. The first change of a row
-- must lock its key. If only a later change in the transaction does, a writer to a stream that read the row before can
-- continue with what it read: in one of some 15 races a chunk was committed after the end of its run.
UPDATE perdure.run AS run
SET seq = coalesce(b.seq, run.seq), head = coalesce(b.head, run.head),
    semaphore = coalesce(b.semaphore, run.semaphore), status = coalesce(b.status, run.status),
    closed_at_ms = coalesce(b.closed_at_ms, run.closed_at_ms),
    owner = CASE WHEN b.closed_at_ms IS NULL THEN run.owner END
FROM (
    SELECT locked.id, b.seq, b.head, b.semaphore, b.status, b.closed_at_ms
    FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[],
                $8::text[], $9::bigint[])
             AS b (id, epoch, head_before, semaphore_before, seq, head, semaphore, status, closed_at_ms)
    JOIN perdure.run AS locked
      ON locked.id = b.id AND locked.epoch = b.epoch
     AND (b.head_before IS NULL
          OR (locked.head = b.head_before AND locked.semaphore = b.semaphore_before))
    ORDER BY locked.id FOR UPDATE OF locked
) AS b
WHERE run.id = b.id

-- name: begin_books
-- Commits: one new run, its first entries and postings, as one statement and so in one round trip. If it exists,
-- nothing is written: the count of rows shows that.
WITH born AS (
    INSERT INTO perdure.run (id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
                             created_at_ms, closed_at_ms, chain, parent, forked_from, slot)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                         $8::bigint[], $9::bigint[], $10::bytea[], $11::bigint[], $12::text[], $13::bigint[],
                         $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[])
    ON CONFLICT DO NOTHING
    RETURNING id
), appended AS (
    INSERT INTO perdure.event (run_id, seq, at_ms, body, prev, sealed, erased)
    SELECT e.* FROM born, unnest($19::text[], $20::bigint[], $21::bigint[], $22::text[], $23::bytea[],
                                 $24::bytea[], $25::bytea[]) AS e
), posted AS (
    INSERT INTO perdure.ledger (run_id, account, balance)
    SELECT p.* FROM born, unnest($26::text[], $27::text[], $28::bigint[]) AS p
)
SELECT id FROM born

-- name: commit_books
-- Commits: what `advance_runs`, `close_runs`, the entries and `post` commit, as one statement and so in one round trip.
-- If any row does not fit, nothing is written: the count of rows shows that.
-- Locks: the run rows, in the order of ids.
WITH fit AS (
    SELECT locked.id, b.seq, b.head, b.semaphore, b.status, b.closed_at_ms
    FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[],
                $8::text[], $19::bigint[])
             AS b (id, epoch, head_before, semaphore_before, seq, head, semaphore, status, closed_at_ms)
    JOIN perdure.run AS locked
      ON locked.id = b.id AND locked.epoch = b.epoch
     AND locked.head = b.head_before AND locked.semaphore = b.semaphore_before
    ORDER BY locked.id FOR NO KEY UPDATE OF locked
), whole AS (
    SELECT count(*) = cardinality($1::text[]) AS fits FROM fit
), appended AS (
    INSERT INTO perdure.event (run_id, seq, at_ms, body, prev, sealed, erased)
    SELECT e.* FROM whole, unnest($9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::bytea[],
                                  $14::bytea[], $15::bytea[]) AS e
    WHERE whole.fits
), posted AS (
    INSERT INTO perdure.ledger AS ledger (run_id, account, balance)
    SELECT p.* FROM whole, unnest($16::text[], $17::text[], $18::bigint[]) AS p
    WHERE whole.fits
    ON CONFLICT (run_id, account) DO UPDATE SET balance = ledger.balance + excluded.balance
)
UPDATE perdure.run AS run
SET seq = fit.seq, head = fit.head, semaphore = fit.semaphore, status = fit.status,
    closed_at_ms = fit.closed_at_ms, owner = CASE WHEN fit.closed_at_ms IS NULL THEN run.owner END
FROM fit, whole
WHERE run.id = fit.id AND whole.fits

-- name: end_books
-- Commits: what `commit_books` commits, for groups in which runs end.
-- Locks: the run rows, in the order of ids, also against appends to their streams. Fails at once if an append holds a
-- lock: then the group is written in a transaction, where it may wait.
WITH fit AS (
    SELECT locked.id, b.seq, b.head, b.semaphore, b.status, b.closed_at_ms
    FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[],
                $8::text[], $19::bigint[])
             AS b (id, epoch, head_before, semaphore_before, seq, head, semaphore, status, closed_at_ms)
    JOIN perdure.run AS locked
      ON locked.id = b.id AND locked.epoch = b.epoch
     AND locked.head = b.head_before AND locked.semaphore = b.semaphore_before
    ORDER BY locked.id FOR UPDATE OF locked NOWAIT
), whole AS (
    SELECT count(*) = cardinality($1::text[]) AS fits FROM fit
), appended AS (
    INSERT INTO perdure.event (run_id, seq, at_ms, body, prev, sealed, erased)
    SELECT e.* FROM whole, unnest($9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::bytea[],
                                  $14::bytea[], $15::bytea[]) AS e
    WHERE whole.fits
), posted AS (
    INSERT INTO perdure.ledger AS ledger (run_id, account, balance)
    SELECT p.* FROM whole, unnest($16::text[], $17::text[], $18::bigint[]) AS p
    WHERE whole.fits
    ON CONFLICT (run_id, account) DO UPDATE SET balance = ledger.balance + excluded.balance
)
UPDATE perdure.run AS run
SET seq = fit.seq, head = fit.head, semaphore = fit.semaphore, status = fit.status,
    closed_at_ms = fit.closed_at_ms, owner = CASE WHEN fit.closed_at_ms IS NULL THEN run.owner END
FROM fit, whole
WHERE run.id = fit.id AND whole.fits

-- name: close_runs
-- Commits: the time at which runs ended. They have no owner from then on: any host may settle messages that
-- arrive later. A statement of its own, after values that a host publishes, which need its ownership.
-- Locks: the run rows, also against appends to their streams, which end here.
UPDATE perdure.run AS run SET closed_at_ms = b.closed_at_ms, owner = NULL
FROM (
    SELECT locked.id, b.closed_at_ms
    FROM unnest($1::text[], $2::bigint[]) AS b (id, closed_at_ms)
    JOIN perdure.run AS locked ON locked.id = b.id
    ORDER BY locked.id FOR UPDATE OF locked
) AS b
WHERE run.id = b.id

-- name: park_runs
-- Commits: why runs are parked, or that they are not any more. `advance_runs` has checked their fences.
UPDATE perdure.run AS run SET parked = b.reason
FROM unnest($1::text[], $2::text[]) AS b (id, reason) WHERE run.id = b.id

-- name: blame_runs
-- Commits: the fingerprints of the errors with which runs failed. `advance_runs` has checked their fences.
UPDATE perdure.run AS run SET error = b.error
FROM unnest($1::text[], $2::text[]) AS b (id, error) WHERE run.id = b.id

-- name: post
-- Commits: postings, summed per account.
INSERT INTO perdure.ledger AS ledger (run_id, account, balance)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
ON CONFLICT (run_id, account) DO UPDATE SET balance = ledger.balance + excluded.balance

-- name: enqueue
-- Commits: messages, once per GUID. A message that is due at once arrives after all pending messages that were first
-- sent to the same run or mailbox, which its GUID names. The eighth value numbers such messages of one group.
INSERT INTO perdure.message (run_id, guid, kind, step, payload, due_at_ms, arrival)
SELECT b.run_id, b.guid, b.kind, b.step, b.payload, b.due_at_ms,
       CASE WHEN b.due_at_ms <> 0 THEN b.arrival ELSE greatest(b.arrival, b.place + coalesce((
           SELECT m.arrival FROM perdure.message AS m
           WHERE left(m.guid, 34) = left(b.guid, 34) AND m.state = 'pending' AND (m.due_at_ms = 0) IS TRUE
           ORDER BY m.arrival DESC LIMIT 1), 0)) END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[])
         AS b (run_id, guid, kind, step, payload, due_at_ms, arrival, place)
ON CONFLICT (run_id, guid) DO NOTHING

-- name: forward
-- Commits: pending messages, under their GUIDs, to other runs. A message that is there already stays. With a step: only
-- messages for that step are forwarded, and concern no step from then on.
-- Locks: the messages; a transaction that waits for the lock finds them deleted.
WITH moved AS (
    DELETE FROM perdure.message AS message
    USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS b (run_id, guid, to_run, step)
    WHERE message.run_id = b.run_id AND message.guid = b.guid AND message.state = 'pending'
      AND (b.step IS NULL OR message.step = b.step)
    RETURNING b.to_run, message.guid, kind, CASE WHEN b.step IS NULL THEN message.step END AS step,
              payload, due_at_ms, arrival
)
INSERT INTO perdure.message (run_id, guid, kind, step, payload, due_at_ms, arrival)
SELECT * FROM moved
ON CONFLICT (run_id, guid) DO NOTHING

-- name: acknowledge
-- Commits: messages are deleted, because their runs have recorded them.
DELETE FROM perdure.message AS message
USING unnest($1::text[], $2::text[]) AS b (run_id, guid)
WHERE message.run_id = b.run_id AND message.guid = b.guid

-- name: mark
-- Commits: messages are not delivered any more, and why.
UPDATE perdure.message AS message
SET state = b.state, reason = b.reason
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS b (run_id, guid, state, reason)
WHERE message.run_id = b.run_id AND message.guid = b.guid

-- name: put_work
-- Commits: tasks on their queues, once per step.
INSERT INTO perdure.work (run_id, step, guid, queue, priority, payload, available_at_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::bytea[], $7::bigint[])
ON CONFLICT (run_id, step) DO NOTHING

-- name: hold_work
-- Commits: the tasks of runs that are paused are held, so that no host claims them; or they are no longer held. Claims
-- under way keep their tokens.
UPDATE perdure.work AS work SET held = b.held
FROM unnest($1::text[], $2::integer[]) AS b (run_id, held)
WHERE work.run_id = b.run_id

-- name: park_steps
-- Commits: steps wait for an operator, so that lists find them. Their entries say the same.
INSERT INTO perdure.parked_step (run_id, step, task, error, since_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
ON CONFLICT (run_id, step) DO UPDATE SET error = excluded.error, since_ms = excluded.since_ms

-- name: enrol_runs
-- Commits: new runs are to be published to buses, from their first entry on.
INSERT INTO perdure.publication (run_id, bus, holder, lease_until_ms, seq, replay)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[])
ON CONFLICT DO NOTHING

-- name: unpark_steps
-- Commits: steps no longer wait for an operator.
DELETE FROM perdure.parked_step AS parked
USING unnest($1::text[], $2::text[]) AS b (run_id, step)
WHERE parked.run_id = b.run_id AND parked.step = b.step

-- name: finish_work
-- Commits: tasks are off their queues, only by the token of the last claim: the count of rows shows that.
DELETE FROM perdure.work AS work
USING unnest($1::text[], $2::text[], $3::text[]) AS b (run_id, step, token)
WHERE work.run_id = b.run_id AND work.step = b.step AND work.token = b.token

-- name: drop_work
-- Commits: tasks are off their queues, claimed or not.
DELETE FROM perdure.work AS work
USING unnest($1::text[], $2::text[]) AS b (run_id, step)
WHERE work.run_id = b.run_id AND work.step = b.step

-- name: publish
-- Commits: values replace the stored ones, whatever the clocks say. The time of a name never goes back.
-- Locks: the values, in the given order.
INSERT INTO perdure.published AS published (run_id, name, payload, at_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[])
ON CONFLICT (run_id, name) DO UPDATE SET payload = excluded.payload,
    at_ms = greatest(excluded.at_ms, published.at_ms)

-- name: publish_by
-- Commits: as `publish`, but a host's values only if it owns the run or has claimed the named step: a run that is over
-- has no owner, and its tasks are off their queues.
-- Locks: the runs and tasks of values that a host sends, against another owner or claimant. Then the values, in the
-- given order.
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::text[], $6::text[])
                      AS b (run_id, name, payload, at_ms, host, step)
), owned AS (
    SELECT run.id, run.owner FROM perdure.run AS run
    WHERE (run.id, run.owner) IN (SELECT run_id, host FROM given WHERE step IS NULL)
    ORDER BY run.id FOR SHARE
), claimed AS (
    SELECT work.run_id, work.step, work.host FROM perdure.work AS work
    WHERE (work.run_id, work.step, work.host) IN (SELECT run_id, step, host FROM given)
    ORDER BY work.run_id, work.step FOR SHARE
)
INSERT INTO perdure.published AS published (run_id, name, payload, at_ms)
SELECT run_id, name, payload, at_ms FROM given
WHERE host IS NULL
   OR (step IS NULL AND (run_id, host) IN (SELECT id, owner FROM owned))
   OR (run_id, step, host) IN (SELECT run_id, step, host FROM claimed)
ON CONFLICT (run_id, name) DO UPDATE SET payload = excluded.payload,
    at_ms = greatest(excluded.at_ms, published.at_ms)

-- name: publish_again
-- Commits: as `publish_by`, for values that a host has sent before. They replace older values only.
-- Locks: the runs and tasks of values that a host sends, against another owner or claimant. Then the values, in the
-- given order.
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::text[], $6::text[])
                      AS b (run_id, name, payload, at_ms, host, step)
), owned AS (
    SELECT run.id, run.owner FROM perdure.run AS run
    WHERE (run.id, run.owner) IN (SELECT run_id, host FROM given WHERE step IS NULL)
    ORDER BY run.id FOR SHARE
), claimed AS (
    SELECT work.run_id, work.step, work.host FROM perdure.work AS work
    WHERE (work.run_id, work.step, work.host) IN (SELECT run_id, step, host FROM given)
    ORDER BY work.run_id, work.step FOR SHARE
)
INSERT INTO perdure.published AS published (run_id, name, payload, at_ms)
SELECT run_id, name, payload, at_ms FROM given
WHERE host IS NULL
   OR (step IS NULL AND (run_id, host) IN (SELECT id, owner FROM owned))
   OR (run_id, step, host) IN (SELECT run_id, step, host FROM claimed)
ON CONFLICT (run_id, name) DO UPDATE SET payload = excluded.payload, at_ms = excluded.at_ms
WHERE excluded.at_ms > published.at_ms

-- name: grow_streams
-- Commits: the given number of positions more at the end of each stream, only of open runs. Returns the new lengths:
-- the count of rows shows what was refused. The bundle in which a run appends itself may also end it.
-- Locks: the runs against their end; other changes of the runs do not wait for it. Then, until the commit, the streams
-- in the given order, so that positions are in the order of commits.
WITH going AS (
    SELECT run.id FROM perdure.run AS run
    WHERE run.id = ANY ($1::text[]) AND run.closed_at_ms IS NULL
    ORDER BY run.id FOR KEY SHARE
)
INSERT INTO perdure.stream AS stream (run_id, name, length)
SELECT b.run_id, b.name, b.length
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[]) AS b (run_id, name, length, is_own)
WHERE b.is_own OR b.run_id IN (SELECT id FROM going)
ON CONFLICT (run_id, name) DO UPDATE SET length = stream.length + excluded.length
RETURNING run_id, name, length

-- name: append_chunks
-- Commits: chunks at their positions. A chunk that is stored already inserts nothing: the count of rows shows that.
INSERT INTO perdure.chunk (run_id, name, position, step, attempt, claim, number, payload, at_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::integer[], $6::integer[], $7::bigint[],
                     $8::bytea[], $9::bigint[])
ON CONFLICT (run_id, name, step, attempt, claim, number) DO NOTHING

-- name: select_closing_times
-- When each of these runs ended.
SELECT id, closed_at_ms FROM perdure.run WHERE id = ANY ($1::text[])

-- name: select_known_chunks
-- Which of these chunks are stored already.
SELECT chunk.run_id, chunk.name, chunk.step, chunk.attempt, chunk.claim, chunk.number
FROM perdure.chunk AS chunk
JOIN unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::integer[], $6::bigint[])
         AS b (run_id, name, step, attempt, claim, number)
  ON chunk.run_id = b.run_id AND chunk.name = b.name AND chunk.step = b.step AND chunk.attempt = b.attempt
 AND chunk.claim = b.claim AND chunk.number = b.number

-- name: select_held_work
-- Which of these claims still hold.
SELECT work.run_id, work.step
FROM perdure.work AS work
JOIN unnest($1::text[], $2::text[], $3::text[]) AS b (run_id, step, token)
  ON work.run_id = b.run_id AND work.step = b.step AND work.token = b.token

-- name: lock_work
-- Locks: tasks, so that a commit whose outcome is unknown has ended, committed or rolled back.
SELECT work.run_id, work.step
FROM perdure.work AS work
JOIN unnest($1::text[], $2::text[]) AS b (run_id, step) ON work.run_id = b.run_id AND work.step = b.step
FOR UPDATE OF work

-- name: select_other_results
-- Which of these messages are stored with another kind: as the result of another claim of the same task.
SELECT message.run_id, message.guid
FROM perdure.message AS message
JOIN unnest($1::text[], $2::text[], $3::text[]) AS b (run_id, guid, kind)
  ON message.run_id = b.run_id AND message.guid = b.guid AND message.kind <> b.kind

-- name: claim_work
-- Commits: a token and a lease on tasks that are due, not held and under no lease.
-- A host that claims its own task again does not count: it knows whether it has begun it.
-- The queues take turns, so that each gets an equal share as far as it has work. Through the index in its order, so that
-- a claim costs by what it takes and not by what waits.
-- Locks: the tasks; those that another host is claiming now are skipped, not waited for.
WITH due AS (
    SELECT candidate.run_id, candidate.step
    FROM unnest($1::text[]) WITH ORDINALITY AS served (queue, place)
    CROSS JOIN LATERAL (
        SELECT locked.*, row_number() OVER (ORDER BY priority DESC, available_at_ms) AS turn
        FROM (
            SELECT run_id, step, priority, available_at_ms FROM perdure.work
            WHERE queue = served.queue AND held = 0 AND available_at_ms <= $2
            ORDER BY priority DESC, available_at_ms
            LIMIT $3
            FOR UPDATE SKIP LOCKED
        ) AS locked
    ) AS candidate
    ORDER BY turn, place
    LIMIT $3
)
UPDATE perdure.work AS work
SET token = $4, host = $5, available_at_ms = $6,
    claims = claims + (work.host IS DISTINCT FROM $5)::integer
FROM due LEFT JOIN perdure.run AS run ON run.id = due.run_id
WHERE work.run_id = due.run_id AND work.step = due.step
RETURNING work.run_id, work.step, guid, queue, available_at_ms, priority, payload, token, claims, run.owner

-- name: renew_work
-- Commits: a longer lease, for those tasks that still have the token.
UPDATE perdure.work AS work SET available_at_ms = $4
FROM unnest($1::text[], $2::text[], $3::text[]) AS b (run_id, step, token)
WHERE work.run_id = b.run_id AND work.step = b.step AND work.token = b.token
RETURNING work.run_id, work.step

-- name: regain_work
-- Commits: claims hold again, with their tokens, where the task was put back and no other host has claimed it since.
-- The claim is the same, so it is not counted again; a repeated statement changes nothing.
UPDATE perdure.work AS work SET token = b.token, host = $6, available_at_ms = $7
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[]) AS b (run_id, step, token, guid, claims)
WHERE work.run_id = b.run_id AND work.step = b.step
  AND (work.token IS NULL OR work.token = b.token) AND work.guid = b.guid AND work.claims = b.claims
RETURNING work.run_id, work.step

-- name: return_work
-- Commits: a host's claimed tasks are due again, under no token.
UPDATE perdure.work SET token = NULL, host = NULL, available_at_ms = $2 WHERE host = $1

-- name: return_claims
-- Commits: tasks are due at the given time, under no token, where they still have the token of the claim.
-- The tasks are unstarted, so the claim does not count.
UPDATE perdure.work AS work SET token = NULL, host = NULL, available_at_ms = $4, claims = claims - 1
FROM unnest($1::text[], $2::text[], $3::text[]) AS b (run_id, step, token)
WHERE work.run_id = b.run_id AND work.step = b.step AND work.token = b.token

-- name: return_stopped
-- Commits: tasks are due, under no token, with another payload, where they still have the token of the claim.
UPDATE perdure.work AS work SET token = NULL, host = NULL, available_at_ms = $4, payload = b.payload
FROM unnest($1::text[], $2::text[], $3::text[], $5::bytea[]) AS b (run_id, step, token, payload)
WHERE work.run_id = b.run_id AND work.step = b.step AND work.token = b.token

-- name: claim_runs
-- Commits: ownership of open runs that have no owner, oldest first, each under a new epoch. NULL programs are all.
-- Locks: the runs; those that another host is claiming now are skipped, not waited for.
WITH free AS (
    SELECT id FROM perdure.run
    WHERE owner IS NULL AND closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 AND ($3::text[] IS NULL OR program = ANY ($3::text[]))
    ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE perdure.run AS run SET owner = $1, epoch = epoch + 1
FROM free WHERE run.id = free.id
RETURNING run.id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
          created_at_ms, closed_at_ms, parked, chain

-- name: take_over
-- Commits: ownership of another owner's open runs, each under a new epoch, which fences the old owner out.
-- Locks: the runs in the order of ids; waits for a commit of the old owner that is under way.
WITH lost AS (
    SELECT id FROM perdure.run WHERE owner = $1 AND closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0
    ORDER BY id LIMIT $3 FOR NO KEY UPDATE
)
UPDATE perdure.run AS run SET owner = $2, epoch = epoch + 1
FROM lost WHERE run.id = lost.id AND run.owner = $1
RETURNING run.id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
          created_at_ms, closed_at_ms, parked, chain

-- name: take_run
-- Commits: ownership of one open run of another owner, or of none, under a new epoch, which fences the old owner out.
-- Locks: the run; waits for a commit of the old owner that is under way.
UPDATE perdure.run SET owner = $3, epoch = epoch + 1
WHERE id = $1 AND owner IS NOT DISTINCT FROM $2 AND closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0
RETURNING id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
          created_at_ms, closed_at_ms, parked, chain

-- name: lock_runs
-- Locks: runs in the order of ids, so that a takeover whose outcome is unknown has ended, committed or rolled back.
SELECT id, owner, epoch FROM perdure.run WHERE id = ANY ($1::text[]) ORDER BY id FOR NO KEY UPDATE

-- name: release_run
-- Commits: the run has no owner, under a new epoch; only by the owner of this epoch.
UPDATE perdure.run SET owner = NULL, epoch = epoch + 1 WHERE id = $1 AND epoch = $2

-- name: release_runs
-- Commits: an owner's open runs have none, each under a new epoch, which fences the owner out.
-- Locks: the runs in the order of ids; waits for a commit of the owner that is under way.
WITH mine AS (
    SELECT id FROM perdure.run WHERE owner = $1 AND closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE perdure.run AS run SET owner = NULL, epoch = epoch + 1
FROM mine WHERE run.id = mine.id AND run.owner = $1

-- name: erase_payloads
-- Commits: digests replace payloads, so that the chain still verifies.
UPDATE perdure.event SET sealed = NULL, erased = sha256(sealed)
WHERE run_id = $1 AND seq >= $2 AND seq < $3 AND sealed IS NOT NULL

-- name: select_run
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure.run WHERE id = $1

-- name: select_runs_by_id
SELECT id, epoch, head, semaphore FROM perdure.run WHERE id = ANY ($1::text[])

-- name: lock_run
-- Locks: one run, so that a commit whose outcome is unknown has ended, committed or rolled back.
SELECT seq, head FROM perdure.run WHERE id = $1 FOR NO KEY UPDATE

-- name: select_run_by_key
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure.run WHERE scope = $1 AND program = $2 AND key = $3 AND replaced_by IS NULL

-- name: select_key_holders
-- The runs that have these keys, through the index of keys.
SELECT run.scope, run.program, run.key, run.id
FROM unnest($1::text[], $2::text[], $3::text[]) AS b (scope, program, key)
JOIN perdure.run AS run ON run.scope = b.scope AND run.program = b.program AND run.key = b.key
                            AND run.replaced_by IS NULL

-- name: select_chain_end
-- The last run of a chain, by its index: later runs sort later.
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure.run
WHERE id = coalesce((SELECT max(id) FROM perdure.run WHERE chain = $1), $1)

-- name: select_chain
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure.run WHERE id = $1 OR chain = $1 ORDER BY id

-- name: select_chain_accounts
-- Which of these accounts any run of a chain has.
SELECT DISTINCT account FROM perdure.ledger
WHERE account = ANY ($2::text[])
  AND run_id IN (SELECT id FROM perdure.run WHERE id = $1 OR chain = $1)

-- name: select_sent
-- A message by its GUID: where it is pending or marked, with its payload; and which runs have recorded it. Of the chain
-- that begins with a run, or of a mailbox, which is no run.
SELECT run_id, payload, false FROM perdure.message
WHERE guid = $2 AND run_id IN (SELECT $1::text UNION ALL SELECT id FROM perdure.run WHERE chain = $1)
UNION ALL
SELECT run_id, NULL, true FROM perdure.ledger
WHERE account = $3 AND run_id IN (SELECT $1::text UNION ALL SELECT id FROM perdure.run WHERE chain = $1)

-- name: select_chain_published
-- What a chain has published, older values first: a run publishes nothing once it is continued, and later runs sort later.
SELECT name, payload FROM perdure.published
WHERE run_id IN (SELECT id FROM perdure.run WHERE id = $1 OR chain = $1)
ORDER BY run_id COLLATE "C"

-- name: select_open_runs
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure.run
WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 AND owner = $3 AND id > $1
ORDER BY id LIMIT $2

-- name: select_unowned_runs
-- A statement of its own, because Postgres uses no index for IS NOT DISTINCT FROM.
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure.run
WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 AND owner IS NULL AND id > $1
ORDER BY id LIMIT $2

-- name: select_open_ids
-- Of all owners: an owner may change between two pages, an id does not. NULL programs are all.
SELECT id FROM perdure.run
WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 AND id > $1 AND ($3::text[] IS NULL OR program = ANY ($3::text[]))
ORDER BY id LIMIT $2

-- name: select_runs
SELECT id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
       created_at_ms, closed_at_ms, parked, chain
FROM perdure.run WHERE id = ANY ($1::text[]) ORDER BY id

-- name: select_progress
-- How far these runs are, for callers that wait for them: their rows, the number of chunks in their streams, and the last
-- entries of those that are over.
SELECT run.id, run.scope, run.program, run.version, run.digest, run.key, run.owner, run.epoch, run.seq, run.head, run.semaphore,
       run.status, run.created_at_ms, run.closed_at_ms, run.parked, run.chain,
       (SELECT coalesce(sum(length), 0)::bigint FROM perdure.stream WHERE run_id = run.id),
       last.seq, last.at_ms, last.body, last.prev, last.sealed, last.erased
FROM perdure.run AS run
LEFT JOIN perdure.event AS last
  ON run.closed_at_ms IS NOT NULL AND last.run_id = run.id AND last.seq = run.seq - 1
WHERE run.id = ANY ($1::text[])

-- name: select_journals
SELECT run_id, seq, at_ms, body, prev, sealed, erased FROM perdure.event
WHERE run_id = ANY ($1::text[]) ORDER BY run_id, seq

-- name: select_ledgers
SELECT run_id, account, balance FROM perdure.ledger WHERE run_id = ANY ($1::text[])

-- name: select_step_messages
-- Messages that concern a step of these runs: timers, retries, results, and signals that matched a hook. A damaged row
-- may have lost its step.
SELECT run_id, guid, step, state, kind, due_at_ms, coalesce(octet_length(payload), 0) > 0
FROM perdure.message
WHERE run_id = ANY ($1::text[]) AND (step IS NOT NULL OR kind NOT LIKE 'signal:%' AND kind NOT LIKE 'cancel%' AND kind NOT LIKE 'act:%')

-- name: select_sent_messages
-- Signals, cancels and acts to this run that concern no step: no entry of its journal demands them.
SELECT run_id, guid, step, state, kind, due_at_ms, coalesce(octet_length(payload), 0) > 0
FROM perdure.message WHERE run_id = $1 AND step IS NULL AND (kind LIKE 'signal:%' OR kind LIKE 'cancel%' OR kind LIKE 'act:%')

-- name: select_queued
-- Which steps of these runs are on which queues since when, which hosts have claimed them, the GUIDs of their results,
-- and the first bytes of their payloads: 8192 are reserved for the header.
SELECT run_id, step, guid, queue, available_at_ms, host, substring(payload from 1 for 8192) FROM perdure.work
WHERE run_id = ANY ($1::text[])

-- name: select_entries
SELECT seq, at_ms, body, prev, sealed, erased FROM perdure.event
WHERE run_id = $1 AND seq >= $2 AND seq < $3 ORDER BY seq

-- name: select_grown
-- Entries of several journals: of each run those from the first number to before the second. The limit makes the planner
-- read each journal by its key, so that a read costs by what it returns.
SELECT part.run_id, grown.seq, grown.at_ms, grown.body, grown.prev, grown.sealed, grown.erased
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS part (run_id, first, last)
CROSS JOIN LATERAL (
  SELECT seq, at_ms, body, prev, sealed, erased FROM perdure.event
  WHERE run_id = part.run_id AND seq >= part.first AND seq < part.last ORDER BY seq LIMIT part.last - part.first
) AS grown
ORDER BY part.run_id, grown.seq

-- name: select_all_entries
-- For inspection: all rows, whether or not they are valid entries.
SELECT seq, at_ms, body, prev, sealed, erased FROM perdure.event WHERE run_id = $1 ORDER BY seq

-- name: select_balance
SELECT balance FROM perdure.ledger WHERE run_id = $1 AND account = $2

-- name: select_balances
SELECT account, balance FROM perdure.ledger WHERE run_id = $1

-- name: select_due_messages
-- Level-triggered: every message that is pending, due, and addressed to a run of this owner or a closed run. A run that
-- is parked or paused takes only cancels and acts, and an unowned run takes nothing before a host claims it: other
-- messages to it stay due, and would take the places of those that can be delivered. Messages that are due at once go
-- before timers: they were durable before the timers ended.
-- Due messages are deleted, so there are always few; slightly old statistics say that all are due, and the planner
-- would scan both tables. Hence bounds that it can't look up, for which it assumes few rows, and a condition in place
-- of a join. A run that does not exist makes that condition NULL.
SELECT m.run_id, m.guid, m.kind, m.due_at_ms, m.arrival, m.step, m.payload
FROM perdure.message AS m
WHERE m.state = 'pending'
  AND m.due_at_ms BETWEEN (SELECT '-9223372036854775808'::bigint) AND (SELECT $2::bigint)
  AND (SELECT (run.owner = $1 OR run.owner IS NULL AND run.closed_at_ms IS NOT NULL)
              AND (run.parked IS NULL AND run.status <> 'paused' OR m.kind LIKE 'cancel%' OR m.kind LIKE 'act:%')
       FROM perdure.run AS run WHERE run.id = m.run_id)
ORDER BY m.due_at_ms, m.arrival LIMIT $3

-- name: select_pending
-- Messages that are pending and due at once, first sent to the given runs or mailboxes (with which GUIDs begin), and
-- addressed to a run of this owner or an unowned run. Through the index of arrivals, for each of them.
SELECT m.run_id, m.guid, m.kind, m.due_at_ms, m.arrival, m.step, m.payload
FROM unnest($2::text[]) AS origin CROSS JOIN LATERAL (
    SELECT * FROM perdure.message AS m
    WHERE left(m.guid, 34) = origin AND m.state = 'pending' AND (m.due_at_ms = 0) IS TRUE
      AND (SELECT (run.owner = $1 OR run.owner IS NULL)
              AND (run.parked IS NULL AND run.status <> 'paused' OR m.kind LIKE 'cancel%' OR m.kind LIKE 'act:%')
           FROM perdure.run AS run WHERE run.id = m.run_id)
    ORDER BY m.arrival, m.guid LIMIT $3
) AS m
ORDER BY m.arrival, m.guid LIMIT $3

-- name: select_next_due
-- When the next message is due that `select_due_messages` will find, if that is before the given time: later messages
-- may be other hosts'.
SELECT m.due_at_ms
FROM perdure.message AS m
WHERE m.state = 'pending' AND m.due_at_ms <= (SELECT $2::bigint)
  AND (SELECT (run.owner = $1 OR run.owner IS NULL AND run.closed_at_ms IS NOT NULL)
              AND (run.parked IS NULL AND run.status <> 'paused' OR m.kind LIKE 'cancel%' OR m.kind LIKE 'act:%')
       FROM perdure.run AS run WHERE run.id = m.run_id)
ORDER BY m.due_at_ms LIMIT 1

-- name: select_messages
SELECT run_id, guid, kind, due_at_ms, arrival, step, payload, state, reason
FROM perdure.message WHERE run_id = $1 ORDER BY arrival, guid

-- name: select_acts
-- The acts that were sent to a run, without what they say. Acknowledged ones are deleted.
SELECT guid, state, reason FROM perdure.message WHERE run_id = $1 AND kind LIKE 'act:%' ORDER BY arrival, guid

-- name: select_queued_work
SELECT step, queue, host FROM perdure.work WHERE run_id = $1 ORDER BY step

-- name: select_statuses
SELECT id, status FROM perdure.run WHERE id = ANY ($1::text[]) ORDER BY id

-- name: select_published
SELECT name, payload FROM perdure.published WHERE run_id = $1 ORDER BY name

-- name: select_streams
SELECT name, length FROM perdure.stream WHERE run_id = $1 ORDER BY name

-- name: select_chunks
SELECT position, step, attempt, claim, payload, at_ms FROM perdure.chunk
WHERE run_id = $1 AND name = $2 AND position >= $3 ORDER BY position LIMIT $4

-- name: select_spans
-- Numbers grow with positions, so their difference is the same within a span.
SELECT step, attempt, claim, min(position), max(position) FROM perdure.chunk
WHERE run_id = $1 AND name = $2 AND position < $3
GROUP BY step, attempt, claim, position - number ORDER BY min(position)

-- name: select_next_work
-- Steps through the index from each priority of a queue to the next, so the cost grows with priorities, not with tasks.
WITH RECURSIVE level (queue, priority) AS (
    SELECT name, (SELECT max(priority) FROM perdure.work WHERE queue = name AND held = 0)
    FROM unnest($1::text[]) AS name
    UNION ALL
    SELECT queue, (SELECT max(work.priority) FROM perdure.work AS work
                   WHERE work.held = 0 AND work.queue = level.queue AND work.priority < level.priority)
    FROM level WHERE priority IS NOT NULL
)
SELECT min((SELECT min(available_at_ms) FROM perdure.work AS work
            WHERE work.held = 0 AND work.queue = level.queue AND work.priority = level.priority))
FROM level

-- name: select_next_run_id
-- The next run of which the journal or the ledger has a row, whether or not the run itself exists.
SELECT least((SELECT min(id) FROM perdure.run WHERE id > $1),
             (SELECT min(run_id) FROM perdure.event WHERE run_id > $1),
             (SELECT min(run_id) FROM perdure.ledger WHERE run_id > $1))

-- name: select_last_run_id
-- The last run of which the journal or the ledger has a row; '' if there is none.
SELECT coalesce(greatest((SELECT max(id) FROM perdure.run),
                         (SELECT max(run_id) FROM perdure.event),
                         (SELECT max(run_id) FROM perdure.ledger)), '')

-- name: open_transaction
-- For a user's transaction: limits the time of a statement, and the time in which the server hears nothing. Names without
-- a schema mean what they mean to the role, but never a table of Perdure, as they would if the role had the name of
-- Perdure's schema. Writes and returns a token, by which the outcome can be read; the session keeps it for
-- `reset_session`, if it commits.
WITH outcome AS (
    INSERT INTO perdure.outcome (token, committed, at_ms)
    VALUES (gen_random_uuid(), 1, extract(epoch FROM now()) * 1000)
    RETURNING token
)
SELECT set_config('perdure.token', token, false),
       set_config('statement_timeout', $1, true),
       set_config('idle_in_transaction_session_timeout', $1, true),
       set_config('search_path', (SELECT coalesce(string_agg(quote_ident(name), ', ' ORDER BY place), '')
                                  FROM unnest(current_schemas(false)) WITH ORDINALITY AS path (name, place)
                                  WHERE name <> 'perdure'), true)
FROM outcome

-- name: open_adopted
-- For a session of the user: the same limits and token, for this transaction only; names keep their meaning. Also returns
-- the server's number of the transaction, which shows whether the user has ended it.
WITH outcome AS (
    INSERT INTO perdure.outcome (token, committed, at_ms)
    VALUES (gen_random_uuid(), 1, extract(epoch FROM now()) * 1000)
    RETURNING token
)
SELECT token, pg_current_xact_id()::text,
       set_config('statement_timeout', $1, true),
       set_config('idle_in_transaction_session_timeout', $1, true)
FROM outcome

-- name: select_transaction
-- The server's number of this transaction; NULL if it has written nothing.
SELECT pg_current_xact_id_if_assigned()::text

-- name: reset_session
-- After a user's transaction: removes from the session all that the user set. Prepared statements are Perdure's, and
-- stay. Deletes the token, because the outcome is known; no caller waits until that is on disk.
DELETE FROM perdure.outcome WHERE token = current_setting('perdure.token', true);
SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL; DISCARD TEMP; DISCARD SEQUENCES;
SELECT set_config('synchronous_commit', 'off', true)

-- name: select_database
-- Identifies the database and the start of its server: it equals no other database, not even a copy.
SELECT oid || '/' || extract(epoch FROM pg_postmaster_start_time())
FROM pg_catalog.pg_database WHERE datname = current_database()

-- name: write_outcome
-- Commits, with the transaction that it is part of: that this transaction committed. Returns the token to ask by.
INSERT INTO perdure.outcome (token, committed, at_ms)
VALUES (gen_random_uuid(), 1, extract(epoch FROM now()) * 1000)
RETURNING token

-- name: settle_outcome
-- Commits: that a transaction did not commit, unless it did; returns 1 if it did. Waits for a transaction that has not
-- ended, because two can't write the same token; so the answer is final, and the same if asked again.
INSERT INTO perdure.outcome (token, committed, at_ms) VALUES ($1, 0, extract(epoch FROM now()) * 1000)
ON CONFLICT (token) DO UPDATE SET token = excluded.token
RETURNING committed

-- name: forget_outcome
-- Commits: the outcome is deleted, because its host knows it. No caller waits until that is on disk.
DELETE FROM perdure.outcome WHERE token = $1 AND set_config('synchronous_commit', 'off', true) IS NOT NULL

-- name: delete_old_outcomes
-- Commits: outcomes that ended processes left behind are deleted, once no host can still ask for them.
DELETE FROM perdure.outcome WHERE at_ms < extract(epoch FROM now()) * 1000 - $1::bigint

-- name: register_host
-- Commits: a host. Registering again after an unknown outcome changes nothing.
INSERT INTO perdure.host (id, beat, stale_after_ms, queues, started_at_ms)
VALUES ($1, 0, $2, $3, $4)
ON CONFLICT (id) DO NOTHING

-- name: select_clock
-- The time of the server's clock: hosts set theirs by it.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: remove_host
-- Commits: the host has no row; runs that it still owns and tasks that it still claims are a dead host's.
DELETE FROM perdure.host WHERE id = $1

-- name: count_open_of
-- How many open runs each of these hosts has, up to a number.
SELECT host, (SELECT count(*) FROM (
    SELECT 1 FROM perdure.run AS run WHERE run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0 AND run.owner = host LIMIT $2
) AS counted) FROM unnest($1::text[]) AS host

-- name: count_open
SELECT count(*) FROM perdure.run WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 AND owner = $1

-- name: count_unowned
-- A statement of its own, because Postgres uses no index for IS NOT DISTINCT FROM.
SELECT count(*) FROM perdure.run WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 AND owner IS NULL

-- name: beat
-- Commits: a host's next heartbeat. Returns its snapshot, or nothing if it has no row.
UPDATE perdure.host AS self SET beat = beat + 1 WHERE id = $1 RETURNING :host_snapshot

-- name: host_snapshot
-- What a host needs to know, in one snapshot: all hosts; owners of open runs and claimants of work; whether there are
-- unowned runs for it; when the next message and the next work are due; whether a signal may match a hook; a number that
-- grows with each version that is deployed or activated; when a schedule is due next; when a waiting run may begin; the time, by the server's clock if
-- there is one; the version of the schema. Uses the indexes of `claim_runs`, `select_next_due` and `select_next_work`, and steps from each owner or
-- claimant to the next, so the cost grows with hosts, not with runs or work.
SELECT
(SELECT coalesce(json_agg(json_build_array(host.id, host.beat, host.stale_after_ms)), '[]') FROM perdure.host AS host),
(WITH RECURSIVE found (owner) AS (
    SELECT min(owner) FROM perdure.run WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 AND owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(run.owner) FROM perdure.run AS run
            WHERE run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0 AND run.owner > found.owner)
    FROM found WHERE owner IS NOT NULL
 )
 SELECT coalesce(json_agg(owner), '[]') FROM found WHERE owner IS NOT NULL),
(WITH RECURSIVE found (host) AS (
    SELECT min(host) FROM perdure.work WHERE host IS NOT NULL
    UNION ALL
    SELECT (SELECT min(work.host) FROM perdure.work AS work WHERE work.host > found.host)
    FROM found WHERE host IS NOT NULL
 )
 SELECT coalesce(json_agg(host), '[]') FROM found WHERE host IS NOT NULL),
EXISTS (SELECT 1 FROM perdure.run AS run
        WHERE run.owner IS NULL AND run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0 AND run.program = ANY ($3::text[])),
(SELECT m.due_at_ms
 FROM perdure.message AS m
 WHERE m.state = 'pending' AND m.due_at_ms <= (SELECT $4::bigint)
   AND (SELECT (run.owner = $1 OR run.owner IS NULL AND run.closed_at_ms IS NOT NULL)
               AND (run.parked IS NULL AND run.status <> 'paused' OR m.kind LIKE 'cancel%' OR m.kind LIKE 'act:%')
        FROM perdure.run AS run WHERE run.id = m.run_id)
 ORDER BY m.due_at_ms LIMIT 1),
(WITH RECURSIVE level (queue, priority) AS (
    SELECT name, (SELECT max(priority) FROM perdure.work WHERE queue = name AND held = 0)
    FROM unnest($2::text[]) AS name
    UNION ALL
    SELECT queue, (SELECT max(work.priority) FROM perdure.work AS work
                   WHERE work.held = 0 AND work.queue = level.queue AND work.priority < level.priority)
    FROM level WHERE priority IS NOT NULL
 )
 SELECT min((SELECT min(available_at_ms) FROM perdure.work AS work
             WHERE work.held = 0 AND work.queue = level.queue AND work.priority = level.priority))
 FROM level),
EXISTS (SELECT 1 FROM perdure.message AS m
        WHERE m.state = 'pending' AND m.due_at_ms <= (SELECT $4::bigint)
          AND (SELECT true FROM perdure.hook AS hook
               WHERE hook.mailbox = m.run_id AND hook.kind = 'wait'
                 AND (SELECT run.closed_at_ms IS NULL FROM perdure.run AS run WHERE run.id = hook.run_id)
               LIMIT 1)),
(SELECT count(*) + coalesce(sum(activations), 0) FROM perdure.program),
(SELECT min(look_at_ms) FROM perdure.schedule WHERE look_at_ms <= (SELECT $4::bigint) AND program = ANY ($3::text[])),
CASE WHEN EXISTS (SELECT 1 FROM perdure.pending WHERE state = 'ready') THEN 0
     ELSE (SELECT min(ready_at_ms) FROM perdure.pending WHERE state = 'delayed' AND ready_at_ms <= (SELECT $4::bigint)) END,
(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
(SELECT value FROM perdure.meta WHERE key = 'schema_version');

-- name: notify
-- Sends a hint after the commit that it is about. This transaction need not survive a crash of the server, and does not
-- wait for the disk.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)

-- name: select_list_columns
-- Columns by which lists find a run, and whether it waits to be admitted.
SELECT parent, forked_from, error, slot, EXISTS (SELECT 1 FROM perdure.pending WHERE run_id = $1)
FROM perdure.run WHERE id = $1

-- name: select_tags
-- Tags and search keys of a run.
SELECT topic, key FROM perdure.hook WHERE run_id = $1 AND kind = 'key'

-- name: select_parked_steps
-- Steps of a run that wait for an operator.
SELECT step FROM perdure.parked_step WHERE run_id = $1
