-- Lists of runs in a Postgres store. `:candidates` stands for one of the indexes below, or for several ranges of one,
-- `:conditions` for those of the filter; named parameters are numbered before the execution. The lateral join takes
-- the candidates in their order, so a page examines no more of them than it needs.

-- name: page
-- Runs that meet all conditions, in the order of the candidates.
SELECT run.id, run.scope, run.program, run.version, run.key, run.status, run.parked, run.owner, run.parent,
       run.forked_from, run.chain, run.error, run.seq, run.created_at_ms, run.closed_at_ms
FROM (:candidates) AS candidate CROSS JOIN LATERAL (
    SELECT run.* FROM perdure.run AS run WHERE run.id = candidate.id OFFSET 0
) AS run
WHERE :conditions
ORDER BY :order
LIMIT :limit

-- name: count
-- How many candidates meet all conditions.
SELECT count(DISTINCT run.id) FROM (:candidates) AS candidate CROSS JOIN LATERAL (
    SELECT run.* FROM perdure.run AS run WHERE run.id = candidate.id OFFSET 0
) AS run
WHERE :conditions

-- name: boundary
-- The last candidate that a page may examine, if there are as many.
SELECT candidate.ended, candidate.id FROM (:candidates) AS candidate LIMIT 1 OFFSET :skipped

-- name: tags
-- The tags and search keys of these runs, by the primary key: the operator hides the index of keys, which is in another order.
SELECT run_id, topic, key FROM perdure.hook WHERE run_id IN (:ids) AND kind || '' = 'key'

-- name: scopes
-- Steps from each scope to the next, so the cost grows with scopes, not with runs.
WITH RECURSIVE found (scope) AS (
    SELECT min(scope) FROM perdure.run
    UNION ALL SELECT (SELECT min(run.scope) FROM perdure.run AS run WHERE run.scope > found.scope) FROM found WHERE scope IS NOT NULL
)
SELECT scope FROM found WHERE scope IS NOT NULL LIMIT :most

-- name: programs
-- Steps from each program of a scope to the next.
WITH RECURSIVE found (program) AS (
    SELECT min(program) FROM perdure.run WHERE scope = :scope
    UNION ALL
    SELECT (SELECT min(run.program) FROM perdure.run AS run WHERE run.scope = :scope AND run.program > found.program)
    FROM found WHERE program IS NOT NULL
)
SELECT program FROM found WHERE program IS NOT NULL LIMIT :most

-- name: owners
-- Steps from each owner of open runs to the next.
WITH RECURSIVE found (owner) AS (
    SELECT min(owner) FROM perdure.run WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 AND owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(run.owner) FROM perdure.run AS run WHERE run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0 AND run.owner > found.owner)
    FROM found WHERE owner IS NOT NULL
)
SELECT owner FROM found WHERE owner IS NOT NULL LIMIT :most

-- name: held_keys
-- Whether more keys than this have the prefix.
SELECT count(*) FROM (SELECT 1 FROM (:candidates) AS candidate LIMIT :most) AS held

-- name: from_all
SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run WHERE run.id < :before

-- name: from_place
SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run WHERE run.scope = :scope AND run.program = :program AND run.id < :before

-- name: from_open
SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run WHERE run.owner = :owner AND run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0 AND run.id < :before

-- name: from_unowned
-- By the owner too: Postgres does not know that one NULL sorts as another.
SELECT unowned.ended, unowned.id FROM (
    SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run
    WHERE run.owner IS NULL AND run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0 AND run.id < :before
    ORDER BY run.owner DESC, run.id DESC LIMIT :examined
) AS unowned

-- name: from_pending
SELECT NULL::bigint AS ended, pending.run_id AS id FROM perdure.pending AS pending WHERE pending.run_id < :before

-- name: from_ended
SELECT run.closed_at_ms AS ended, run.id FROM perdure.run AS run
WHERE run.status = :status AND run.closed_at_ms IS NOT NULL AND run.closed_at_ms >= :closed_from
  AND (run.closed_at_ms, run.id) < (:before_ms, :before)

-- name: from_parent
SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run WHERE run.parent = :parent AND run.id < :before

-- name: from_forks
SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run WHERE run.forked_from = :forked_from AND run.id < :before

-- name: from_chain
SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run WHERE run.chain = :chain AND run.id < :before

-- name: from_first_of_chain
SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run WHERE run.id = :chain AND run.id < :before

-- name: from_error
SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run WHERE run.error = :error AND run.id < :before

-- name: from_parked_steps
-- A run with several such steps has several rows, one after the other.
SELECT NULL::bigint AS ended, parked.run_id AS id FROM perdure.parked_step AS parked WHERE parked.error = :error AND parked.run_id < :before

-- name: where_error
(run.error = :error OR (
    SELECT 1 FROM perdure.parked_step AS parked WHERE parked.run_id = run.id AND parked.error = :error LIMIT 1) IS NOT NULL)

-- name: from_parked
SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run WHERE run.parked IS NOT NULL AND run.id < :before

-- name: from_tag
-- A key that was scrubbed, and that the run got again, has two rows, one after the other.
SELECT NULL::bigint AS ended, hook.run_id AS id FROM perdure.hook AS hook
WHERE hook.kind = 'key' AND hook.topic = :tag_name AND hook.key = :tag_value AND hook.run_id < :before

-- name: from_keys
-- The inner query has no order, so the planner has no reason to walk the runs in the order of ids.
SELECT held.ended, held.id FROM (
    SELECT NULL::bigint AS ended, run.id FROM perdure.run AS run
    WHERE run.scope = :scope AND run.program = :program AND run.key IS NOT NULL AND run.replaced_by IS NULL
      AND run.key >= :key_prefix AND run.key < :key_end OFFSET 0
) AS held WHERE held.id < :before

-- name: where_key_prefix
run.replaced_by IS NULL AND substr(run.key, 1, length(:key_prefix::text)) = :key_prefix::text

-- name: where_tag
-- A scalar query, because a planner may turn EXISTS into a join that scans the tag.
(SELECT 1 FROM perdure.hook AS hook WHERE hook.run_id = run.id AND hook.kind = 'key' AND hook.topic = :tag_name
 AND hook.key = :tag_value LIMIT 1) IS NOT NULL

-- name: where_chain
(run.chain = :chain OR run.id = :chain)

-- name: where_status
-- What users see: a parked run is parked, whatever else it is.
CASE WHEN run.parked IS NULL THEN run.status
     WHEN substr(run.parked, 1, length(:diverged::text)) = :diverged::text THEN 'diverged' ELSE 'parked' END IN (:statuses)

-- name: where_waiting_for
-- A step of a graph has a hook. What a workflow awaits is in the last entry of that kind, a few entries before the end.
run.closed_at_ms IS NULL AND (
    (SELECT 1 FROM perdure.hook AS hook WHERE hook.run_id = run.id AND hook.kind = 'wait' AND hook.topic = :waiting_for
     LIMIT 1) IS NOT NULL
    OR run.status IN ('blocked', 'paused') AND strpos((
        SELECT event.body FROM perdure.event AS event
        WHERE event.run_id = run.id AND event.body LIKE '{"type":"ExecutionAwaiting"%' ORDER BY event.seq DESC LIMIT 1
    ), :awaited_name) > 0
)
