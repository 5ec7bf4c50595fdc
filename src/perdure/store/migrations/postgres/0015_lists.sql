-- Lists of runs by parent, fork, error, place, end and tag; and read-only views for the user's SQL.

ALTER TABLE perdure.run ADD COLUMN parent text COLLATE "C";
ALTER TABLE perdure.run ADD COLUMN forked_from text COLLATE "C";
ALTER TABLE perdure.run ADD COLUMN error text COLLATE "C";

-- The first entry of a child names the run and the step that get its result.
UPDATE perdure.run SET parent = substr(e.body, position('"parent_id":"r_' IN e.body) + 13, 34)
FROM perdure.event AS e WHERE e.run_id = run.id AND e.seq = 0 AND position('"parent_id":"r_' IN e.body) > 0;

CREATE INDEX run_place ON perdure.run (scope, program, id);
CREATE INDEX run_ended ON perdure.run (status, closed_at_ms, id) WHERE closed_at_ms IS NOT NULL;
CREATE INDEX run_parent ON perdure.run (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX run_forks ON perdure.run (forked_from, id) WHERE forked_from IS NOT NULL;
CREATE INDEX run_error ON perdure.run (error, id) WHERE error IS NOT NULL;
CREATE INDEX run_parked ON perdure.run (id) WHERE parked IS NOT NULL;

DROP INDEX perdure.hook_key;
CREATE INDEX hook_key ON perdure.hook (topic, key, run_id) WHERE kind = 'key';

DROP INDEX perdure.parked_step_error;
CREATE INDEX parked_step_error ON perdure.parked_step (error, run_id);

-- The runs. `entries` counts the entries of the journal, `open_obligations` is 0 once the run is over, `error` is the
-- fingerprint of the error that it failed with.
CREATE VIEW perdure.perdure_v1_runs AS
SELECT id AS run_id, scope, program, version, key, status, parked, owner, parent, forked_from, chain, error,
       seq AS entries, semaphore AS open_obligations, created_at_ms, closed_at_ms
FROM perdure.run;

-- Tags of runs, and search keys of graphs' runs.
CREATE VIEW perdure.perdure_v1_tags AS
SELECT DISTINCT run_id, topic AS name, key AS value FROM perdure.hook WHERE kind = 'key';

-- The journals: one row per entry. `body` is the event as JSON, without the user's data.
CREATE VIEW perdure.perdure_v1_history AS
SELECT run_id, seq, at_ms, body::json ->> 'type' AS type,
       coalesce(body::json ->> 'promise_id', body::json ->> 'step') AS step,
       coalesce((body::json ->> 'attempt')::bigint, (body::json ->> 'failed_attempt')::bigint) AS attempt,
       body, erased IS NOT NULL AS is_erased
FROM perdure.event;

-- Steps that journals schedule: tasks, child runs, branches and timers. `attempts` is the number of the last attempt
-- that started.
CREATE VIEW perdure.perdure_v1_steps AS
SELECT run_id, step, max(body::json ->> 'function_name') AS name,
       max(CASE type WHEN 'TimerScheduled' THEN 'timer' WHEN 'InvokeScheduled' THEN
           CASE body::json ->> 'place' WHEN 'run' THEN 'run' ELSE coalesce(body::json ->> 'kind', 'function') END END) AS kind,
       max(body::json ->> 'queue') AS queue,
       CASE WHEN count(*) FILTER (WHERE type = 'StepSkipped') > 0 THEN 'skipped'
            WHEN count(*) FILTER (WHERE type = 'InvokeCompleted' AND coalesce(body::json ->> 'ok', 'true') = 'false') > 0 THEN 'failed'
            WHEN count(*) FILTER (WHERE type IN ('InvokeCompleted', 'TimerFired')) > 0 THEN 'completed'
            WHEN coalesce(max(seq) FILTER (WHERE type = 'InvokeRetrying'), -1)
                 > coalesce(max(seq) FILTER (WHERE type = 'InvokeStarted'), -1) THEN 'retrying'
            WHEN count(*) FILTER (WHERE type = 'InvokeStarted') > 0 THEN 'running'
            ELSE 'scheduled' END AS status,
       coalesce(max(attempt) FILTER (WHERE type = 'InvokeStarted'), 0) AS attempts,
       min(at_ms) FILTER (WHERE type IN ('InvokeScheduled', 'TimerScheduled')) AS scheduled_at_ms,
       min(at_ms) FILTER (WHERE type = 'InvokeStarted') AS started_at_ms,
       max(at_ms) FILTER (WHERE type IN ('InvokeCompleted', 'TimerFired', 'StepSkipped')) AS ended_at_ms
FROM perdure.perdure_v1_history
WHERE type IN ('InvokeScheduled', 'InvokeStarted', 'InvokeRetrying', 'InvokeCompleted', 'TimerScheduled', 'TimerFired',
               'StepSkipped')
GROUP BY run_id, step;

-- The ledgers: the 15 digits of each account.
CREATE VIEW perdure.perdure_v1_accounts AS
SELECT run_id, account, balance FROM perdure.ledger;

-- What open runs wait for: signals, timers and retries (until a time), and tasks on queues. A signal without a key is
-- what a blocked workflow awaits.
CREATE VIEW perdure.perdure_v1_waits AS
SELECT run_id, step, 'signal' AS kind, topic AS name, key, since_ms, NULL::bigint AS until_ms, NULL::text AS host
FROM perdure.hook WHERE kind = 'wait'
UNION ALL
SELECT run.id, awaited.value ->> 'promise_id', 'signal', awaited.value ->> 'name', NULL, e.at_ms, NULL, NULL
FROM perdure.run AS run
JOIN perdure.event AS e ON e.run_id = run.id AND e.seq = (
    SELECT last.seq FROM perdure.event AS last
    WHERE last.run_id = run.id AND last.body LIKE '{"type":"ExecutionAwaiting"%' ORDER BY last.seq DESC LIMIT 1)
CROSS JOIN LATERAL json_array_elements(
    CASE json_typeof(e.body::json -> 'signal') WHEN 'array' THEN e.body::json -> 'signal'
                                               WHEN 'object' THEN json_build_array(e.body::json -> 'signal')
                                               ELSE '[]'::json END
) AS awaited
WHERE run.closed_at_ms IS NULL AND run.status = 'blocked'
UNION ALL
SELECT m.run_id, m.step, m.kind, NULL, NULL, m.arrival, m.due_at_ms, NULL
FROM perdure.message AS m WHERE m.kind IN ('timer', 'retry') AND m.state = 'pending'
UNION ALL
SELECT work.run_id, work.step, 'task', work.queue, NULL, NULL, work.available_at_ms, work.host
FROM perdure.work AS work;

-- Messages that runs have not recorded yet, or never will: `state` is 'pending', 'stale' or 'dead'.
CREATE VIEW perdure.perdure_v1_messages AS
SELECT run_id, guid, kind, step, due_at_ms, arrival, state, reason, length(payload) AS payload_bytes
FROM perdure.message;

-- Hosts. `beat` grows while a host lives; `queues` is a list as JSON.
CREATE VIEW perdure.perdure_v1_hosts AS
SELECT id AS host, beat, stale_after_ms, queues, started_at_ms FROM perdure.host;

-- Steps that have failed and wait for an operator. `error` is the fingerprint of the last error.
CREATE VIEW perdure.perdure_v1_parked_steps AS
SELECT run_id, step, task, error, since_ms FROM perdure.parked_step;

-- Operators' acts that journals record, accepted or rejected.
CREATE VIEW perdure.perdure_v1_decisions AS
SELECT run_id, seq, at_ms, body::json ->> 'signal_id' AS signal_id, body::json ->> 'signal_type' AS type,
       coalesce(body::json ->> 'by', '') AS actor, coalesce(body::json ->> 'role', '') AS role, body::json ->> 'step' AS step,
       body::json ->> 'type' = 'SignalAccepted' AS is_accepted, coalesce(body::json ->> 'code', '') AS code,
       coalesce(body::json ->> 'reason', '') AS reason
FROM perdure.event
WHERE body LIKE '{"type":"SignalAccepted"%' OR body LIKE '{"type":"SignalRejected"%';
