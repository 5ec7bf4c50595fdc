-- Reads for people who operate a store. Writes nothing.

-- name: count_all_runs
-- The number of runs.
SELECT count(*) FROM perdure_run

-- name: count_open_runs
-- The number of open runs.
SELECT count(*) FROM perdure_run WHERE closed_at_ms IS NULL AND epoch > 0

-- name: select_hosts
-- Every host that has a row, owns open runs or has claimed work.
WITH owners AS (
    SELECT owner AS id, count(*) AS runs FROM perdure_run
    WHERE closed_at_ms IS NULL AND epoch > 0 AND owner IS NOT NULL GROUP BY owner
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
