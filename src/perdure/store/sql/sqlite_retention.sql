-- Statements about runs that leave a SQLite store, or lose their data. `:ids` is a list of run ids as JSON.

-- name: select_retained
SELECT run_id, scope, program, status, created_at_ms, closed_at_ms, entries, head, parent, forked_from, chain,
       archive, receipt, purged_at_ms, is_unfinished
FROM perdure_retained WHERE run_id IN (SELECT value FROM json_each(:ids))

-- name: select_kin
-- Runs, their children, their forks, and the runs that continue them; in the store, or in the archive.
SELECT id, parent, forked_from, chain, closed_at_ms IS NULL, 0
FROM perdure_run
WHERE id IN (SELECT value FROM json_each(:ids)) OR parent IN (SELECT value FROM json_each(:ids))
   OR forked_from IN (SELECT value FROM json_each(:ids)) OR chain IN (SELECT value FROM json_each(:ids))
UNION
SELECT run_id, parent, forked_from, chain, 0, 1
FROM perdure_retained
WHERE archive IS NOT NULL
  AND (run_id IN (SELECT value FROM json_each(:ids)) OR parent IN (SELECT value FROM json_each(:ids))
       OR forked_from IN (SELECT value FROM json_each(:ids)) OR chain IN (SELECT value FROM json_each(:ids)))

-- name: select_ended
-- Runs of a status in the order in which they ended, and whether each is of the program and the scope.
SELECT closed_at_ms, id, (:program IS NULL OR program = :program) AND (:scope IS NULL OR scope = :scope)
FROM perdure_run
WHERE status = :status AND closed_at_ms IS NOT NULL AND closed_at_ms <= :until_ms
  AND (closed_at_ms, id) > (:after_ms, :after_id)
ORDER BY closed_at_ms, id LIMIT :limit

-- name: select_archived
SELECT run_id, scope, program, status, created_at_ms, closed_at_ms, entries, head, parent, forked_from, chain,
       archive, receipt, purged_at_ms, is_unfinished
FROM perdure_retained
WHERE archive IS NOT NULL AND status = :status AND closed_at_ms <= :until_ms
  AND (closed_at_ms, run_id) > (:after_ms, :after_id)
  AND (:program IS NULL OR program = :program) AND (:scope IS NULL OR scope = :scope)
ORDER BY closed_at_ms, run_id LIMIT :limit

-- name: select_beyond
-- The newest ended run that is not among the newest ones that are kept.
SELECT closed_at_ms, id
FROM perdure_run
WHERE status = :status AND closed_at_ms IS NOT NULL
  AND (:program IS NULL OR program = :program) AND (:scope IS NULL OR scope = :scope)
ORDER BY closed_at_ms DESC, id DESC LIMIT 1 OFFSET :keep

-- name: select_removable
-- Runs that may leave the store: they are over, and so is every run that may need them: the parent, children, forks, and
-- the others of the chain, with the chains of the children and forks. And every bus has got its events.
SELECT run.id, run.scope, run.program, run.status, run.created_at_ms, run.closed_at_ms, run.seq, run.head, run.parent,
       run.forked_from, run.chain, (SELECT receipt FROM perdure_retained WHERE run_id = run.id)
FROM perdure_run AS run
WHERE run.id IN (SELECT value FROM json_each(:ids)) AND run.closed_at_ms IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM perdure_run AS other
                  WHERE other.chain = coalesce(run.chain, run.id) AND other.closed_at_ms IS NULL)
  AND NOT EXISTS (SELECT 1 FROM perdure_run AS parent
                  LEFT JOIN perdure_run AS last ON last.chain = coalesce(parent.chain, parent.id)
                  WHERE parent.id = run.parent
                    AND (parent.closed_at_ms IS NULL OR last.id IS NOT NULL AND last.closed_at_ms IS NULL))
  AND NOT EXISTS (SELECT 1 FROM perdure_run AS child
                  LEFT JOIN perdure_run AS last ON last.chain = coalesce(child.chain, child.id)
                  WHERE child.parent = run.id
                    AND (child.closed_at_ms IS NULL OR last.id IS NOT NULL AND last.closed_at_ms IS NULL))
  AND NOT EXISTS (SELECT 1 FROM perdure_run AS fork
                  LEFT JOIN perdure_run AS last ON last.chain = coalesce(fork.chain, fork.id)
                  WHERE fork.forked_from = run.id
                    AND (fork.closed_at_ms IS NULL OR last.id IS NOT NULL AND last.closed_at_ms IS NULL))
  AND NOT EXISTS (SELECT 1 FROM perdure_bus AS bus
                  CROSS JOIN perdure_publication AS unpublished
                  WHERE unpublished.bus = bus.name AND unpublished.run_id = run.id)

-- name: retain
-- Commits: what stays of a run that leaves the store. A receipt stays.
INSERT INTO perdure_retained (run_id, scope, program, status, created_at_ms, closed_at_ms, entries, head, parent,
                              forked_from, chain, archive, purged_at_ms, is_unfinished)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id) DO UPDATE SET archive = excluded.archive, purged_at_ms = excluded.purged_at_ms,
                                   is_unfinished = excluded.is_unfinished

-- name: delete_runs
-- Commits: the runs are gone. The rows of other tables go by statements of the same transaction.
DELETE FROM perdure_run WHERE id IN (SELECT value FROM json_each(:ids))

-- name: delete_rows
-- Commits: rows of runs are gone from one table.
DELETE FROM perdure_:table WHERE run_id IN (SELECT value FROM json_each(:ids))

-- name: delete_waits
-- Commits: runs have no hooks, but are found by their tags.
DELETE FROM perdure_hook WHERE run_id IN (SELECT value FROM json_each(:ids)) AND kind <> 'key'

-- name: select_tagged
-- Archived runs that have a tag, in the order of ids.
SELECT DISTINCT kept.run_id
FROM perdure_hook AS tag JOIN perdure_retained AS kept ON kept.run_id = tag.run_id AND kept.archive IS NOT NULL
WHERE tag.kind = 'key' AND tag.topic = :name AND tag.key = :value
ORDER BY kept.run_id

-- name: select_erasable
-- A run that may be erased: it is over, its journal is as it was read, and no child or fork holds data that it gave them.
SELECT run.id
FROM perdure_run AS run
WHERE run.id = :run_id AND run.closed_at_ms IS NOT NULL AND run.head = :head
  AND NOT EXISTS (SELECT 1 FROM perdure_run AS other
                  WHERE other.parent = run.id
                    AND NOT EXISTS (SELECT 1 FROM perdure_retained AS kept
                                    WHERE kept.run_id = other.id AND kept.receipt IS NOT NULL))
  AND NOT EXISTS (SELECT 1 FROM perdure_run AS other
                  WHERE other.forked_from = run.id
                    AND NOT EXISTS (SELECT 1 FROM perdure_retained AS kept
                                    WHERE kept.run_id = other.id AND kept.receipt IS NOT NULL))
  AND NOT EXISTS (SELECT 1 FROM perdure_retained AS other
                  WHERE other.archive IS NOT NULL AND other.receipt IS NULL
                    AND (other.parent = run.id OR other.forked_from = run.id))

-- name: erase_entry
-- Commits: an entry without its payload and its users' texts. The hash chain still verifies.
UPDATE perdure_event SET body = ?, sealed = NULL, erased = ? WHERE run_id = ? AND seq = ?

-- name: select_slots
-- The slots of limits in which runs counted.
SELECT DISTINCT slot FROM perdure_run WHERE id IN (SELECT value FROM json_each(:ids)) AND slot IS NOT NULL

-- name: delete_slots
-- Commits: the limits' rows for keys that runs gave, if no run counts in them or waits for them, and their rate has room.
DELETE FROM perdure_limit_key
WHERE slot IN (SELECT value FROM json_each(:slots)) AND arrival_us <= :now_us
  AND NOT EXISTS (SELECT 1 FROM perdure_run AS other WHERE other.slot = perdure_limit_key.slot AND other.slot IS NOT NULL
                                                    AND other.closed_at_ms IS NULL AND other.epoch IS NOT 0)
  AND NOT EXISTS (SELECT 1 FROM perdure_pending AS other WHERE other.slot = perdure_limit_key.slot)

-- name: erase_audit
-- Commits: the reasons of acts on the run are gone from the records of who asked for what.
UPDATE perdure_audit SET reason = '' WHERE target = :run_id AND reason <> ''

-- name: erase_run
-- Commits: a run's row without users' texts; and a new epoch, so that a fork that was made of the old journal is
-- rejected.
UPDATE perdure_run SET key = NULL, parked = NULL, error = NULL, slot = NULL, epoch = epoch + 1 WHERE id = :run_id

-- name: retain_erased
-- Commits: the receipt of a run that stays in the store. Objects of it are still to be deleted.
INSERT INTO perdure_retained (run_id, scope, program, status, created_at_ms, closed_at_ms, entries, head, parent,
                              forked_from, chain, receipt, is_unfinished)
SELECT id, scope, program, status, created_at_ms, closed_at_ms, seq, head, parent, forked_from, chain, :receipt, 1
FROM perdure_run WHERE id = :run_id
ON CONFLICT (run_id) DO UPDATE SET receipt = excluded.receipt, is_unfinished = 1

-- name: erase_archived
-- Commits: another object holds an archived run, and its receipt. The old object is still to be deleted.
UPDATE perdure_retained SET archive = :archive, receipt = :receipt, is_unfinished = 1
WHERE run_id = :run_id AND archive = :before
RETURNING run_id

-- name: purge_archived
-- Commits: runs are no longer in the archive. Their objects are still to be deleted.
UPDATE perdure_retained SET archive = NULL, purged_at_ms = :now_ms, is_unfinished = 1
WHERE run_id IN (SELECT value FROM json_each(:ids)) AND archive IS NOT NULL
RETURNING run_id

-- name: select_unfinished
SELECT run_id FROM perdure_retained WHERE is_unfinished = 1 ORDER BY run_id LIMIT :limit

-- name: finish
-- Commits: no objects of the run are left to be deleted.
UPDATE perdure_retained SET is_unfinished = 0 WHERE run_id = :run_id

-- name: sweep_messages
-- Commits: old messages that are not delivered any more are deleted. Operators' acts go with their runs.
DELETE FROM perdure_message WHERE (run_id, guid) IN (
    SELECT run_id, guid FROM perdure_message
    WHERE state <> 'pending' AND substr(kind, 1, 4) <> 'act:' AND arrival < :before_ms ORDER BY arrival LIMIT :limit)
