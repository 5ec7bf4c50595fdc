-- Lists of runs by parent, fork, error, place, end and tag; and read-only views for the user's SQL.

ALTER TABLE perdure_run ADD COLUMN parent TEXT;
ALTER TABLE perdure_run ADD COLUMN forked_from TEXT;
ALTER TABLE perdure_run ADD COLUMN error TEXT;

-- The first entry of a child names the run and the step that get its result.
UPDATE perdure_run SET parent = substr(e.body, instr(e.body, '"parent_id":"r_') + 13, 34)
FROM perdure_event AS e WHERE e.run_id = perdure_run.id AND e.seq = 0 AND instr(e.body, '"parent_id":"r_') > 0;

CREATE INDEX perdure_run_place ON perdure_run (scope, program, id);
CREATE INDEX perdure_run_ended ON perdure_run (status, closed_at_ms, id) WHERE closed_at_ms IS NOT NULL;
CREATE INDEX perdure_run_parent ON perdure_run (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX perdure_run_forks ON perdure_run (forked_from, id) WHERE forked_from IS NOT NULL;
CREATE INDEX perdure_run_error ON perdure_run (error, id) WHERE error IS NOT NULL;
CREATE INDEX perdure_run_parked ON perdure_run (id) WHERE parked IS NOT NULL;

DROP INDEX perdure_hook_key;
CREATE INDEX perdure_hook_key ON perdure_hook (topic, key, run_id) WHERE kind = 'key';

DROP INDEX perdure_parked_step_error;
CREATE INDEX perdure_parked_step_error ON perdure_parked_step (error, run_id);

-- The runs. `entries` counts the entries of the journal, `open_obligations` is 0 once the run is over, `error` is the
-- fingerprint of the error that it failed with.
CREATE VIEW perdure_v1_runs AS
SELECT id AS run_id, scope, program, version, key, status, parked, owner, parent, forked_from, chain, error,
       seq AS entries, semaphore AS open_obligations, created_at_ms, closed_at_ms
FROM perdure_run;

-- Tags of runs, and search keys of graphs' runs.
CREATE VIEW perdure_v1_tags AS
SELECT DISTINCT run_id, topic AS name, key AS value FROM perdure_hook WHERE kind = 'key';

-- The journals: one row per entry. `body` is the event as JSON, without the user's data.
CREATE VIEW perdure_v1_history AS
SELECT run_id, seq, at_ms, body ->> '$.type' AS type,
       coalesce(body ->> '$.promise_id', body ->> '$.step') AS step,
       coalesce(body ->> '$.attempt', body ->> '$.failed_attempt') AS attempt,
       body, erased IS NOT NULL AS is_erased
FROM perdure_event;

-- Steps that journals schedule: tasks, child runs, branches and timers. `attempts` is the number of the last attempt
-- that started.
CREATE VIEW perdure_v1_steps AS
SELECT run_id, step, max(body ->> '$.function_name') AS name,
       max(CASE type WHEN 'TimerScheduled' THEN 'timer' WHEN 'InvokeScheduled' THEN
           CASE body ->> '$.place' WHEN 'run' THEN 'run' ELSE coalesce(body ->> '$.kind', 'function') END END) AS kind,
       max(body ->> '$.queue') AS queue,
       CASE WHEN count(*) FILTER (WHERE type = 'StepSkipped') > 0 THEN 'skipped'
            WHEN count(*) FILTER (WHERE type = 'InvokeCompleted' AND coalesce(body ->> '$.ok', 1) = 0) > 0 THEN 'failed'
            WHEN count(*) FILTER (WHERE type IN ('InvokeCompleted', 'TimerFired')) > 0 THEN 'completed'
            WHEN coalesce(max(seq) FILTER (WHERE type = 'InvokeRetrying'), -1)
                 > coalesce(max(seq) FILTER (WHERE type = 'InvokeStarted'), -1) THEN 'retrying'
            WHEN count(*) FILTER (WHERE type = 'InvokeStarted') > 0 THEN 'running'
            ELSE 'scheduled' END AS status,
       coalesce(max(attempt) FILTER (WHERE type = 'InvokeStarted'), 0) AS attempts,
       min(at_ms) FILTER (WHERE type IN ('InvokeScheduled', 'TimerScheduled')) AS scheduled_at_ms,
       min(at_ms) FILTER (WHERE type = 'InvokeStarted') AS started_at_ms,
       max(at_ms) FILTER (WHERE type IN ('InvokeCompleted', 'TimerFired', 'StepSkipped')) AS ended_at_ms
FROM perdure_v1_history
WHERE type IN ('InvokeScheduled', 'InvokeStarted', 'InvokeRetrying', 'InvokeCompleted', 'TimerScheduled', 'TimerFired',
               'StepSkipped')
GROUP BY run_id, step;

-- The ledgers: the 15 digits of each account.
CREATE VIEW perdure_v1_accounts AS
SELECT run_id, account, balance FROM perdure_ledger;

-- What open runs wait for: signals, timers and retries (until a time), and tasks on queues. A signal without a key is
-- what a blocked workflow awaits.
CREATE VIEW perdure_v1_waits AS
SELECT run_id, step, 'signal' AS kind, topic AS name, key, since_ms, NULL AS until_ms, NULL AS host
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

-- Messages that runs have not recorded yet, or never will: `state` is 'pending', 'stale' or 'dead'.
CREATE VIEW perdure_v1_messages AS
SELECT run_id, guid, kind, step, due_at_ms, arrival, state, reason, length(payload) AS payload_bytes
FROM perdure_message;

-- Hosts. `beat` grows while a host lives; `queues` is a list as JSON.
CREATE VIEW perdure_v1_hosts AS
SELECT id AS host, beat, stale_after_ms, queues, started_at_ms FROM perdure_host;

-- Steps that have failed and wait for an operator. `error` is the fingerprint of the last error.
CREATE VIEW perdure_v1_parked_steps AS
SELECT run_id, step, task, error, since_ms FROM perdure_parked_step;

-- Operators' acts that journals record, accepted or rejected.
CREATE VIEW perdure_v1_decisions AS
SELECT run_id, seq, at_ms, body ->> '$.signal_id' AS signal_id, body ->> '$.signal_type' AS type,
       coalesce(body ->> '$.by', '') AS actor, coalesce(body ->> '$.role', '') AS role, body ->> '$.step' AS step,
       body ->> '$.type' = 'SignalAccepted' AS is_accepted, coalesce(body ->> '$.code', '') AS code,
       coalesce(body ->> '$.reason', '') AS reason
FROM perdure_event
WHERE body LIKE '{"type":"SignalAccepted"%' OR body LIKE '{"type":"SignalRejected"%';
