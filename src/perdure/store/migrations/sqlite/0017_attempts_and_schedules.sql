-- Views of attempts, schedules and ticks. In the view of waits a graph's hook without a key has none.

DROP VIEW perdure_v1_waits;

-- What open runs wait for: signals, timers and retries (until a time), and tasks on queues. A signal without a key
-- is sent to its run.
CREATE VIEW perdure_v1_waits AS
SELECT run_id, step, 'signal' AS kind, topic AS name, nullif(key, '') AS key, since_ms, NULL AS until_ms, NULL AS host
FROM perdure_hook WHERE kind = 'wait'
UNION ALL
SELECT run.id, awaited.value ->> '$.promise_id', 'signal', awaited.value ->> '$.name', NULL, e.at_ms, NULL, NULL
FROM perdure_run AS run
JOIN perdure_event AS e ON e.run_id = run.id AND e.seq = (
    SELECT last.seq FROM perdure_event AS last
    WHERE last.run_id = run.id AND last.body LIKE '{"type":"ExecutionAwaiting"%' ORDER BY last.seq DESC LIMIT 1)
CROSS JOIN json_each(
    CASE json_type(e.body, '$.signal') WHEN 'array' THEN e.body -> '$.signal'
                                       WHEN 'object' THEN json_array(e.body -> '$.signal') ELSE '[]' END
) AS awaited
WHERE run.closed_at_ms IS NULL AND run.status = 'blocked'
UNION ALL
SELECT m.run_id, m.step, m.kind, NULL, NULL, m.arrival, m.due_at_ms, NULL
FROM perdure_message AS m WHERE m.kind IN ('timer', 'retry') AND m.state = 'pending'
UNION ALL
SELECT work.run_id, work.step, 'task', work.queue, NULL, NULL, work.available_at_ms, work.host
FROM perdure_work AS work;

-- Attempts of tasks and child runs. An attempt without an outcome is 'running' if no later one has started and its run is
-- open; otherwise its outcome is 'unknown'. `logical_attempt` grows when an operator retries the step.
CREATE VIEW perdure_v1_attempts AS
SELECT event.run_id, event.step, event.attempt, min(event.logical_attempt) AS logical_attempt,
       CASE WHEN count(*) FILTER (WHERE event.type = 'InvokeRetrying' OR event.is_failure) > 0 THEN 'failed'
            WHEN count(*) FILTER (WHERE event.type = 'InvokeCompleted') > 0 THEN 'completed'
            WHEN max(event.last_attempt) = event.attempt AND max(run.closed_at_ms) IS NULL THEN 'running'
            ELSE 'unknown' END AS status,
       min(event.at_ms) FILTER (WHERE event.type = 'InvokeStarted') AS started_at_ms,
       max(event.at_ms) FILTER (WHERE event.type <> 'InvokeStarted') AS ended_at_ms,
       max(event.retry_at_ms) FILTER (WHERE event.retry_at_ms >= 0) AS retry_at_ms
FROM (
    SELECT run_id, step, type, attempt, at_ms, coalesce(body ->> '$.ok', 1) = 0 AS is_failure,
           body ->> '$.retry_at_ms' AS retry_at_ms, max(attempt) OVER (PARTITION BY run_id, step) AS last_attempt,
           1 + count(*) FILTER (WHERE type = 'SignalAccepted') OVER (PARTITION BY run_id, step ORDER BY seq)
               AS logical_attempt
    FROM perdure_v1_history
    WHERE type IN ('InvokeStarted', 'InvokeRetrying', 'InvokeCompleted')
       OR type = 'SignalAccepted' AND body ->> '$.signal_type' = 'RETRY_STEP'
) AS event
JOIN perdure_run AS run ON run.id = event.run_id
WHERE event.type <> 'SignalAccepted'
GROUP BY event.run_id, event.step, event.attempt;

-- Schedules. `next_at_ms` is the next instant of the timetable, which is JSON; a paused schedule starts no runs.
CREATE VIEW perdure_v1_schedules AS
SELECT scope, name, program, state ->> '$.timetable' AS timetable,
       coalesce(state ->> '$.overlap', 'skip') AS overlap, state ->> '$.pause' IS NOT NULL AS is_paused,
       coalesce(state ->> '$.pause', '') AS note, state ->> '$.next_ms' AS next_at_ms,
       state ->> '$.waiting.instant_ms' AS waiting_ms, state ->> '$.last_run' AS last_run
FROM perdure_schedule;

-- What became of the newest ticks of each schedule: `count` of them in a row, up to `until_ms`, if they shared a fate.
CREATE VIEW perdure_v1_ticks AS
SELECT scope, name, number, body ->> '$.instant_ms' AS at_ms, body ->> '$.outcome' AS outcome, body ->> '$.run_id' AS run_id,
       body ->> '$.reason' AS reason, body ->> '$.count' AS count, body ->> '$.until_ms' AS until_ms
FROM perdure_tick;
