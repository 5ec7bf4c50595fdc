-- The view of decisions has the acts that no journal records, too. A view of artifacts.

DROP VIEW perdure_v1_decisions;

-- Operators' acts, accepted or rejected. Those without a `seq` are in no journal: the run had ended, or the act was one
-- of too many; `at_ms` is when they were sent.
CREATE VIEW perdure_v1_decisions AS
SELECT run_id, seq, at_ms, body ->> '$.signal_id' AS signal_id, body ->> '$.signal_type' AS type,
       coalesce(body ->> '$.by', '') AS actor, coalesce(body ->> '$.role', '') AS role, body ->> '$.step' AS step,
       body ->> '$.type' = 'SignalAccepted' AS is_accepted, coalesce(body ->> '$.code', '') AS code,
       coalesce(body ->> '$.reason', '') AS reason
FROM perdure_event
WHERE body LIKE '{"type":"SignalAccepted"%' OR body LIKE '{"type":"SignalRejected"%'
UNION ALL
SELECT sent.run_id, NULL, sent.arrival, sent.act ->> '$.id', substr(sent.kind, 5),
       coalesce(sent.act ->> '$.by', ''), coalesce(sent.act ->> '$.role', ''), sent.act ->> '$.step',
       sent.verdict LIKE 'accepted;%',
       CASE WHEN sent.verdict LIKE 'accepted;%' THEN '' ELSE substr(sent.verdict, 1, instr(sent.verdict, ': ') - 1) END,
       coalesce(sent.act ->> '$.reason', '')
FROM (SELECT run_id, arrival, kind, reason AS verdict,
             CASE WHEN json_valid(CAST(payload AS TEXT)) THEN CAST(payload AS TEXT) ELSE '{}' END AS act
      FROM perdure_message WHERE kind LIKE 'act:%' AND state = 'dead') AS sent
WHERE sent.verdict LIKE 'accepted;%' OR instr(sent.verdict, ': ') > 1;

-- Artifacts that tasks have stored, by the results that refer to them; `attempt` is the attempt that stored it.
CREATE VIEW perdure_v1_artifacts AS
SELECT e.run_id, e.seq, e.at_ms, e.body ->> '$.promise_id' AS step, coalesce(e.body ->> '$.attempt', 1) AS attempt,
       stored.value ->> '$.uri' AS uri, stored.value ->> '$.kind' AS kind, stored.value ->> '$.sha256' AS sha256,
       stored.value ->> '$.size_bytes' AS size_bytes, stored.value ->> '$.expires_at_ms' AS expires_at_ms
FROM perdure_event AS e CROSS JOIN json_each(e.body, '$.artifacts') AS stored
WHERE e.body LIKE '{"type":"InvokeCompleted"%"artifacts":[%';
