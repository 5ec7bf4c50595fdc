-- The view of decisions has the acts that no journal records, too. A view of artifacts.

DROP VIEW perdure.perdure_v1_decisions;

-- Operators' acts, accepted or rejected. Those without a `seq` are in no journal: the run had ended, or the act was one
-- of too many; `at_ms` is when they were sent.
CREATE VIEW perdure.perdure_v1_decisions AS
SELECT run_id, seq, at_ms, body::json ->> 'signal_id' AS signal_id, body::json ->> 'signal_type' AS type,
       coalesce(body::json ->> 'by', '') AS actor, coalesce(body::json ->> 'role', '') AS role, body::json ->> 'step' AS step,
       body::json ->> 'type' = 'SignalAccepted' AS is_accepted, coalesce(body::json ->> 'code', '') AS code,
       coalesce(body::json ->> 'reason', '') AS reason
FROM perdure.event
WHERE body LIKE '{"type":"SignalAccepted"%' OR body LIKE '{"type":"SignalRejected"%'
UNION ALL
SELECT sent.run_id, NULL, sent.arrival, sent.act ->> 'id', substr(sent.kind, 5),
       coalesce(sent.act ->> 'by', ''), coalesce(sent.act ->> 'role', ''), sent.act ->> 'step',
       sent.verdict LIKE 'accepted;%',
       CASE WHEN sent.verdict LIKE 'accepted;%' THEN '' ELSE split_part(sent.verdict, ': ', 1) END,
       coalesce(sent.act ->> 'reason', '')
FROM (SELECT run_id, arrival, kind, reason AS verdict,
             CASE WHEN encode(payload, 'escape') LIKE '{%}' THEN convert_from(payload, 'UTF8') ELSE '{}' END::json AS act
      FROM perdure.message WHERE kind LIKE 'act:%' AND state = 'dead') AS sent
WHERE sent.verdict LIKE 'accepted;%' OR strpos(sent.verdict, ': ') > 1;

-- Artifacts that tasks have stored, by the results that refer to them; `attempt` is the attempt that stored it.
CREATE VIEW perdure.perdure_v1_artifacts AS
SELECT e.run_id, e.seq, e.at_ms, e.body::json ->> 'promise_id' AS step,
       coalesce((e.body::json ->> 'attempt')::bigint, 1) AS attempt,
       stored.value ->> 'uri' AS uri, stored.value ->> 'kind' AS kind, stored.value ->> 'sha256' AS sha256,
       (stored.value ->> 'size_bytes')::bigint AS size_bytes, (stored.value ->> 'expires_at_ms')::bigint AS expires_at_ms
FROM perdure.event AS e CROSS JOIN LATERAL json_array_elements(e.body::json -> 'artifacts') AS stored (value)
WHERE e.body LIKE '{"type":"InvokeCompleted"%"artifacts":[%';
