-- Reads for people who operate a store. Writes nothing.

-- name: count_all_runs
-- The number of runs.
SELECT count(*) FROM perdure.run

-- name: count_open_runs
-- The number of open runs.
SELECT count(*) FROM perdure.run WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0

-- name: select_hosts
-- Every host that has a row, owns open runs or has claimed work.
WITH owners AS (
    SELECT owner AS id, count(*) AS runs FROM perdure.run
    WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 AND owner IS NOT NULL GROUP BY owner
), claimants AS (
    SELECT host COLLATE "C" AS id, count(*) AS tasks FROM perdure.work WHERE host IS NOT NULL GROUP BY host
), everyone AS (
    SELECT id FROM perdure.host UNION SELECT id FROM owners UNION SELECT id FROM claimants
)
SELECT everyone.id, host.beat, host.stale_after_ms, host.queues, host.started_at_ms,
       coalesce(owners.runs, 0), coalesce(claimants.tasks, 0)
FROM everyone
LEFT JOIN perdure.host AS host ON host.id = everyone.id
LEFT JOIN owners ON owners.id = everyone.id
LEFT JOIN claimants ON claimants.id = everyone.id
ORDER BY everyone.id

-- name: select_queues
-- How much work each queue has. Work that was due at once has a time that is long ago by every clock.
SELECT queue,
       count(*) FILTER (WHERE host IS NULL AND available_at_ms <= $1::bigint),
       count(*) FILTER (WHERE host IS NULL AND available_at_ms > $1),
       count(*) FILTER (WHERE host IS NOT NULL),
       min(available_at_ms + CASE WHEN available_at_ms < $1 - $2::bigint / 2 THEN $2 ELSE 0 END)
           FILTER (WHERE host IS NULL AND available_at_ms <= $1)
FROM perdure.work GROUP BY queue ORDER BY queue

-- name: server_settings
-- The settings that decide whether a commit is durable, this session's process, and how many connections there are.
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
       pg_backend_pid(), (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       current_setting('max_connections')::integer

-- name: select_decisions
-- The decisions on acts in the journal of one run, as entries. Reads the whole journal.
SELECT seq, at_ms, body, prev, sealed, erased FROM perdure.event
WHERE run_id = $1 AND (body LIKE '{"type":"SignalAccepted"%' OR body LIKE '{"type":"SignalRejected"%')
ORDER BY seq

-- name: select_acts_set_aside
-- The acts that one run has taken in without an entry, and why.
SELECT run_id, guid, kind, due_at_ms, arrival, step, payload, reason FROM perdure.message
WHERE run_id = $1 AND kind LIKE 'act:%' AND state = 'dead' ORDER BY arrival, guid

-- name: select_listed_run
-- One run as lists show it. $1: its id.
SELECT run.id, run.scope, run.program, run.version, run.key, run.status, run.parked, run.owner, run.parent,
       run.forked_from, run.chain, run.error, run.seq, run.created_at_ms, run.closed_at_ms
FROM perdure.run AS run WHERE run.id = $1

-- name: select_tags_of
-- The tags and search keys of one run. $1: its id.
SELECT run_id, topic, key FROM perdure.hook WHERE run_id = $1 AND kind = 'key'

-- name: select_error_groups
-- The errors of the runs that failed last, and of the steps that wait for an operator; how often each, when it was last
-- met, and where. $1: scope, $2: program, $3: how many of each, $4: groups.
WITH failed AS (
    SELECT id, error, closed_at_ms AS at_ms FROM perdure.run
    WHERE status = 'failed' AND closed_at_ms IS NOT NULL AND ($1::text IS NULL OR scope = $1)
      AND ($2::text IS NULL OR program = $2)
    ORDER BY closed_at_ms DESC, id DESC LIMIT $3
), waiting AS (
    SELECT step.run_id AS id, step.error, step.since_ms AS at_ms
    FROM perdure.parked_step AS step JOIN perdure.run AS run ON run.id = step.run_id
    WHERE ($1::text IS NULL OR run.scope = $1) AND ($2::text IS NULL OR run.program = $2) LIMIT $3
), met AS (
    SELECT id, error, at_ms, 1 AS runs, 0 AS steps FROM failed WHERE error IS NOT NULL
    UNION ALL SELECT id, error, at_ms, 0, 1 FROM waiting
)
SELECT error, sum(runs), sum(steps), max(at_ms), max(id), (SELECT count(*) FROM failed), (SELECT count(*) FROM waiting)
FROM met GROUP BY error ORDER BY sum(runs) + sum(steps) DESC, error LIMIT $4

-- name: select_for_people
-- What these open runs wait for that a person can give: signals, and decisions on parked steps. $1: their ids as JSON.
SELECT run_id, step, kind, name, key, since_ms, NULL AS error FROM perdure.perdure_v1_waits
WHERE kind = 'signal' AND run_id IN (SELECT json_array_elements_text($1::json) COLLATE "C")
UNION ALL
SELECT run_id, step, 'operator', task, NULL, since_ms, error FROM perdure.parked_step
WHERE run_id IN (SELECT json_array_elements_text($1::json) COLLATE "C")
ORDER BY 1 DESC, 2
