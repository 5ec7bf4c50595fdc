-- Statements about runs that leave a Postgres store, or lose their data. `$1` is a list of run ids where there are several.

-- name: select_retained
SELECT run_id, scope, program, status, created_at_ms, closed_at_ms, entries, head, parent, forked_from, chain,
       archive, receipt, purged_at_ms, is_unfinished
FROM perdure.retained WHERE run_id = ANY ($1::text[])

-- name: select_kin
-- Runs, their children, their forks, and the runs that continue them; in the store, or in the archive.
SELECT id, parent, forked_from, chain, (closed_at_ms IS NULL)::int, 0
FROM perdure.run
WHERE id = ANY ($1::text[]) OR parent = ANY ($1::text[])
   OR forked_from = ANY ($1::text[]) OR chain = ANY ($1::text[])
UNION
SELECT run_id, parent, forked_from, chain, 0, 1
FROM perdure.retained
WHERE archive IS NOT NULL
  AND (run_id = ANY ($1::text[]) OR parent = ANY ($1::text[])
       OR forked_from = ANY ($1::text[]) OR chain = ANY ($1::text[]))

-- name: select_ended
-- Runs of a status in the order in which they ended, and whether each is of the program and the scope.
SELECT closed_at_ms, id, ($2::text IS NULL OR program = $2) AND ($3::text IS NULL OR scope = $3)
FROM perdure.run
WHERE status = $1 AND closed_at_ms IS NOT NULL AND closed_at_ms <= $6 AND (closed_at_ms, id) > ($4::bigint, $5::text)
ORDER BY closed_at_ms, id LIMIT $7

-- name: select_archived
SELECT run_id, scope, program, status, created_at_ms, closed_at_ms, entries, head, parent, forked_from, chain,
       archive, receipt, purged_at_ms, is_unfinished
FROM perdure.retained
WHERE archive IS NOT NULL AND status = $1 AND closed_at_ms <= $6 AND (closed_at_ms, run_id) > ($4::bigint, $5::text)
  AND ($2::text IS NULL OR program = $2) AND ($3::text IS NULL OR scope = $3)
ORDER BY closed_at_ms, run_id LIMIT $7

-- name: select_beyond
-- The newest ended run that is not among the newest ones that are kept.
SELECT closed_at_ms, id
FROM perdure.run
WHERE status = $1 AND closed_at_ms IS NOT NULL
  AND ($2::text IS NULL OR program = $2) AND ($3::text IS NULL OR scope = $3)
ORDER BY closed_at_ms DESC, id DESC LIMIT 1 OFFSET $4

-- name: lock_runs
-- Locks: the runs' rows, in the order of ids, so that what follows is decided on what they are until the commit.
SELECT id FROM perdure.run WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE

-- name: select_removable
-- Runs that may leave the store: they are over, and so is every run that may need them: the parent, children, forks, and
-- the others of the chain, with the chains of the children and forks. And every bus has got its events.
SELECT run.id, run.scope, run.program, run.status, run.created_at_ms, run.closed_at_ms, run.seq, run.head, run.parent,
       run.forked_from, run.chain, (SELECT receipt FROM perdure.retained WHERE run_id = run.id)
FROM perdure.run AS run
WHERE run.id = ANY ($1::text[]) AND run.closed_at_ms IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM perdure.run AS other
                  WHERE other.chain = coalesce(run.chain, run.id) AND other.closed_at_ms IS NULL)
  AND NOT EXISTS (SELECT 1 FROM perdure.run AS parent
                  LEFT JOIN perdure.run AS last ON last.chain = coalesce(parent.chain, parent.id)
                  WHERE parent.id = run.parent
                    AND (parent.closed_at_ms IS NULL OR last.id IS NOT NULL AND last.closed_at_ms IS NULL))
  AND NOT EXISTS (SELECT 1 FROM perdure.run AS child
                  LEFT JOIN perdure.run AS last ON last.chain = coalesce(child.chain, child.id)
                  WHERE child.parent = run.id
                    AND (child.closed_at_ms IS NULL OR last.id IS NOT NULL AND last.closed_at_ms IS NULL))
  AND NOT EXISTS (SELECT 1 FROM perdure.run AS fork
                  LEFT JOIN perdure.run AS last ON last.chain = coalesce(fork.chain, fork.id)
                  WHERE fork.forked_from = run.id
                    AND (fork.closed_at_ms IS NULL OR last.id IS NOT NULL AND last.closed_at_ms IS NULL))
  AND NOT EXISTS (SELECT 1 FROM perdure.bus AS bus
                  CROSS JOIN perdure.publication AS unpublished
                  WHERE unpublished.bus = bus.name AND unpublished.run_id = run.id)

-- name: retain
-- Commits: what stays of runs that leave the store. A receipt stays.
INSERT INTO perdure.retained (run_id, scope, program, status, created_at_ms, closed_at_ms, entries, head, parent,
                              forked_from, chain, archive, purged_at_ms, is_unfinished)
SELECT run.id, run.scope, run.program, run.status, run.created_at_ms, run.closed_at_ms, run.seq, run.head, run.parent,
       run.forked_from, run.chain, b.archive, CASE WHEN b.archive IS NULL THEN $3::bigint END,
       (b.archive IS NULL)::int
FROM unnest($1::text[], $2::text[]) AS b (id, archive) JOIN perdure.run AS run ON run.id = b.id
ON CONFLICT (run_id) DO UPDATE SET archive = excluded.archive, purged_at_ms = excluded.purged_at_ms,
                                   is_unfinished = excluded.is_unfinished

-- name: delete_runs
-- Commits: the runs are gone. The rows of other tables go by statements of the same transaction.
DELETE FROM perdure.run WHERE id = ANY ($1::text[])

-- name: delete_rows
-- Commits: rows of runs are gone from one table.
DELETE FROM perdure.:table WHERE run_id = ANY ($1::text[])

-- name: delete_waits
-- Commits: runs have no hooks, but are found by their tags.
DELETE FROM perdure.hook WHERE run_id = ANY ($1::text[]) AND kind <> 'key'

-- name: select_tagged
-- Archived runs that have a tag, in the order of ids.
SELECT DISTINCT kept.run_id
FROM perdure.hook AS tag JOIN perdure.retained AS kept ON kept.run_id = tag.run_id AND kept.archive IS NOT NULL
WHERE tag.kind = 'key' AND tag.topic = $1 AND tag.key = $2
ORDER BY kept.run_id

-- name: select_erasable
-- A run that may be erased: it is over, its journal is as it was read, and no child or fork holds data that it gave them.
SELECT run.id
FROM perdure.run AS run
WHERE run.id = $1 AND run.closed_at_ms IS NOT NULL AND run.head = $2
  AND NOT EXISTS (SELECT 1 FROM perdure.run AS other
                  WHERE other.parent = run.id
                    AND NOT EXISTS (SELECT 1 FROM perdure.retained AS kept
                                    WHERE kept.run_id = other.id AND kept.receipt IS NOT NULL))
  AND NOT EXISTS (SELECT 1 FROM perdure.run AS other
                  WHERE other.forked_from = run.id
                    AND NOT EXISTS (SELECT 1 FROM perdure.retained AS kept
                                    WHERE kept.run_id = other.id AND kept.receipt IS NOT NULL))
  AND NOT EXISTS (SELECT 1 FROM perdure.retained AS other
                  WHERE other.archive IS NOT NULL AND other.receipt IS NULL
                    AND (other.parent = run.id OR other.forked_from = run.id))

-- name: erase_entry
-- Commits: entries without their payloads and users' texts. The hash chain still verifies.
UPDATE perdure.event AS event SET body = b.body, sealed = NULL, erased = b.erased
FROM unnest($2::bigint[], $3::text[], $4::bytea[]) AS b (seq, body, erased)
WHERE event.run_id = $1 AND event.seq = b.seq

-- name: select_slots
-- The slots of limits in which runs counted.
SELECT DISTINCT slot FROM perdure.run WHERE id = ANY ($1::text[]) AND slot IS NOT NULL

-- name: lock_slots
-- Locks: the limits, in the order of their slots, so that a start that is under way is seen by the next statement.
SELECT slot FROM perdure.limit_key WHERE slot = ANY ($1::text[]) ORDER BY slot FOR UPDATE

-- name: delete_slots
-- Commits: the limits' rows for keys that runs gave, if no run counts in them or waits for them, and their rate has room.
DELETE FROM perdure.limit_key
WHERE slot = ANY ($1::text[]) AND arrival_us <= $2
  AND NOT EXISTS (SELECT 1 FROM perdure.run AS other WHERE other.slot = perdure.limit_key.slot AND other.slot IS NOT NULL
                                                    AND other.closed_at_ms IS NULL AND other.epoch IS DISTINCT FROM 0)
  AND NOT EXISTS (SELECT 1 FROM perdure.pending AS other WHERE other.slot = perdure.limit_key.slot)

-- name: erase_audit
-- Commits: the reasons of acts on the run are gone from the records of who asked for what.
UPDATE perdure.audit SET reason = '' WHERE target = $1 AND reason <> ''

-- name: erase_run
-- Commits: a run's row without users' texts; and a new epoch, so that a fork that was made of the old journal is
-- rejected.
UPDATE perdure.run SET key = NULL, parked = NULL, error = NULL, slot = NULL, epoch = epoch + 1 WHERE id = $1

-- name: retain_erased
-- Commits: the receipt of a run that stays in the store. Objects of it are still to be deleted.
INSERT INTO perdure.retained (run_id, scope, program, status, created_at_ms, closed_at_ms, entries, head, parent,
                              forked_from, chain, receipt, is_unfinished)
SELECT id, scope, program, status, created_at_ms, closed_at_ms, seq, head, parent, forked_from, chain, $2, 1
FROM perdure.run WHERE id = $1
ON CONFLICT (run_id) DO UPDATE SET receipt = excluded.receipt, is_unfinished = 1

-- name: erase_archived
-- Commits: another object holds an archived run, and its receipt. The old object is still to be deleted.
UPDATE perdure.retained SET archive = $3, receipt = $4, is_unfinished = 1
WHERE run_id = $1 AND archive = $2
RETURNING run_id

-- name: purge_archived
-- Commits: runs are no longer in the archive. Their objects are still to be deleted.
UPDATE perdure.retained SET archive = NULL, purged_at_ms = $2, is_unfinished = 1
WHERE run_id = ANY ($1::text[]) AND archive IS NOT NULL
RETURNING run_id

-- name: select_unfinished
SELECT run_id FROM perdure.retained WHERE is_unfinished = 1 ORDER BY run_id LIMIT $1

-- name: finish
-- Commits: no objects of the run are left to be deleted.
UPDATE perdure.retained SET is_unfinished = 0 WHERE run_id = $1

-- name: sweep_messages
-- Commits: old messages that are not delivered any more are deleted. Operators' acts go with their runs.
DELETE FROM perdure.message WHERE (run_id, guid) IN (
    SELECT run_id, guid FROM perdure.message
    WHERE state <> 'pending' AND substr(kind, 1, 4) <> 'act:' AND arrival < $1 ORDER BY arrival LIMIT $2)
