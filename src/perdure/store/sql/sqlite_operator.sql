-- Reads for people who operate a store. Writes nothing.

-- name: count_all_runs
-- The number of runs.
SELECT count(*) FROM perdure_run

-- name: count_open_runs
-- The number of open runs.
SELECT count(*) FROM perdure_run WHERE closed_at_ms IS NULL AND epoch IS NOT 0

-- name: select_hosts
-- Every host that has a row, owns open runs or has claimed work.
WITH owners AS (
    SELECT owner AS id, count(*) AS runs FROM perdure_run
    WHERE closed_at_ms IS NULL AND epoch IS NOT 0 AND owner IS NOT NULL GROUP BY owner
), claimants AS (
    SELECT host AS id, count(*) AS tasks FROM perdure_work WHERE host IS NOT NULL GROUP BY host
), everyone AS (
    SELECT id FROM perdure_host UNION SELECT id FROM owners UNION SELECT id FROM claimants
)
SELECT everyone.id, host.beat, host.stale_after_ms, host.queues, host.started_at_ms,
       coalesce(owners.runs, 0), coalesce(claimants.tasks, 0)
FROM everyone
LEFT JOIN perdure_host AS host ON host.id = everyone.id
LEFT JOIN owners ON owners.id = everyone.id
LEFT JOIN claimants ON claimants.id = everyone.id
ORDER BY everyone.id

-- name: select_queues
-- How much work each queue has. Work that was due at once has a time that is long ago by every clock.
SELECT queue,
       sum(host IS NULL AND available_at_ms <= :now_ms),
       sum(host IS NULL AND available_at_ms > :now_ms),
       sum(host IS NOT NULL),
       min(CASE WHEN host IS NULL AND available_at_ms <= :now_ms
                THEN available_at_ms + (available_at_ms < :now_ms - :long_ago_ms / 2) * :long_ago_ms END)
FROM perdure_work GROUP BY queue ORDER BY queue

-- name: select_decisions
-- The decisions on acts in the journal of one run, as entries. Reads the whole journal.
SELECT seq, at_ms, body, prev, sealed, erased FROM perdure_event
WHERE run_id = :run_id AND (body LIKE '{"type":"SignalAccepted"%' OR body LIKE '{"type":"SignalRejected"%')
ORDER BY seq

-- name: select_acts_set_aside
-- The acts that one run has taken in without an entry, and why.
SELECT run_id, guid, kind, due_at_ms, arrival, step, payload, reason FROM perdure_message
WHERE run_id = :run_id AND kind LIKE 'act:%' AND state = 'dead' ORDER BY arrival, guid

-- name: select_listed_run
-- One run as lists show it.
SELECT run.id, run.scope, run.program, run.version, run.key, run.status, run.parked, run.owner, run.parent,
       run.forked_from, run.chain, run.error, run.seq, run.created_at_ms, run.closed_at_ms
FROM perdure_run AS run WHERE run.id = :run_id

-- name: select_tags_of
-- The tags and search keys of one run.
SELECT run_id, topic, key FROM perdure_hook WHERE run_id = :run_id AND kind = 'key'

-- name: select_error_groups
-- The errors of the runs that failed last, and of the steps that wait for an operator; how often each, when it was last
-- met, and where.
WITH failed AS (
    SELECT id, error, closed_at_ms AS at_ms FROM perdure_run
    WHERE status = 'failed' AND closed_at_ms IS NOT NULL AND (:scope IS NULL OR scope = :scope)
      AND (:program IS NULL OR program = :program)
    ORDER BY closed_at_ms DESC, id DESC LIMIT :most
), waiting AS (
    SELECT step.run_id AS id, step.error, step.since_ms AS at_ms
    FROM perdure_parked_step AS step JOIN perdure_run AS run ON run.id = step.run_id
    WHERE (:scope IS NULL OR run.scope = :scope) AND (:program IS NULL OR run.program = :program) LIMIT :most
), met AS (
    SELECT id, error, at_ms, 1 AS runs, 0 AS steps FROM failed WHERE error IS NOT NULL
    UNION ALL SELECT id, error, at_ms, 0, 1 FROM waiting
)
SELECT error, sum(runs), sum(steps), max(at_ms), max(id), (SELECT count(*) FROM failed), (SELECT count(*) FROM waiting)
FROM met GROUP BY error ORDER BY sum(runs) + sum(steps) DESC, error LIMIT :limit

-- name: select_for_people
-- What these open runs wait for that a person can give: signals, and decisions on parked steps.
SELECT run_id, step, kind, name, key, since_ms, NULL AS error FROM perdure_v1_waits
WHERE kind = 'signal' AND run_id IN (SELECT value FROM json_each(:run_ids))
UNION ALL
SELECT run_id, step, 'operator', task, NULL, since_ms, error FROM perdure_parked_step
WHERE run_id IN (SELECT value FROM json_each(:run_ids))
ORDER BY 1 DESC, 2
