-- Statements on the tables of graphs in a Postgres store. Rows come as one array per column and are unnested.

-- name: clear_runs
-- Commits: these runs have no waiting node, and no value for one.
WITH emptied AS (
    DELETE FROM perdure.inbox WHERE run_id = ANY ($1::text[])
)
DELETE FROM perdure.readiness WHERE run_id = ANY ($1::text[])

-- name: unhook_runs
-- Commits: these runs have no hook.
-- Locks: hooks of runs whose rows are locked already; `match_hooks` skips locked hooks.
DELETE FROM perdure.hook WHERE run_id = ANY ($1::text[]) AND kind = 'wait'

-- name: clear_steps
-- Commits: these nodes do not wait, and no value waits for them.
WITH emptied AS (
    DELETE FROM perdure.inbox AS inbox
    USING unnest($1::text[], $2::text[]) AS b (run_id, step)
    WHERE inbox.run_id = b.run_id AND inbox.step = b.step
)
DELETE FROM perdure.readiness AS readiness
USING unnest($1::text[], $2::text[]) AS b (run_id, step)
WHERE readiness.run_id = b.run_id AND readiness.step = b.step

-- name: unhook_steps
-- Commits: these steps have no hook.
-- Locks: hooks of runs whose rows are locked already; `match_hooks` skips locked hooks.
DELETE FROM perdure.hook AS hook
USING unnest($1::text[], $2::text[]) AS b (run_id, step)
WHERE hook.run_id = b.run_id AND hook.step = b.step AND hook.kind = 'wait'

-- name: track
-- Commits: more resolved predecessors of nodes, up to the required number. A row changes nothing if it would exceed
-- that number, or if the number differs from the stored one: the count of rows shows that.
INSERT INTO perdure.readiness AS readiness (run_id, step, required, completed)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
ON CONFLICT (run_id, step) DO UPDATE SET completed = readiness.completed + excluded.completed
WHERE readiness.required = excluded.required AND readiness.completed + excluded.completed <= readiness.required

-- name: deliver
-- Commits: values that wait for nodes. The primary key refuses a second one at the same place.
INSERT INTO perdure.inbox (run_id, step, position, source, variable, value)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bytea[])

-- name: drop_keys
-- Commits: search keys that have other values now are deleted.
-- Locks: hooks of runs whose rows are locked already, in the order in which a broadcast that scrubs locks them.
DELETE FROM perdure.hook AS hook
USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS b (run_id, step, kind, mailbox)
WHERE hook.run_id = b.run_id AND hook.step = b.step AND hook.kind = b.kind AND hook.mailbox = b.mailbox

-- name: hook
-- Commits: hooks, once each.
INSERT INTO perdure.hook (run_id, step, kind, mailbox, topic, key, since_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
ON CONFLICT (run_id, step, kind, mailbox) DO NOTHING

-- name: broadcast
-- Commits: messages to all open runs that search keys find, once per GUID. A broadcast that scrubs hides these keys from
-- later broadcasts; statistics still count them. The messages are due at once, and arrive after pending ones, as those of
-- `enqueue`; `place` numbers the broadcasts of one group. One statement, so that a run that gets the key later is neither
-- signalled nor scrubbed.
-- Locks: the keys that are scrubbed, in their order: a transaction that waits for the lock finds them scrubbed.
WITH b AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::bigint[], $6::bigint[], $7::boolean[])
                      AS b (mailbox, kind, payload, suffix, now_ms, place, scrub)
), scrubbed AS MATERIALIZED (
    SELECT hook.run_id, hook.step, hook.mailbox, hook.topic, hook.key, hook.since_ms, b.kind, b.payload, b.suffix, b.now_ms, b.place
    FROM b
    JOIN perdure.hook AS hook ON hook.mailbox = b.mailbox AND hook.kind = 'key'
    JOIN perdure.run AS run ON run.id = hook.run_id AND run.closed_at_ms IS NULL
    WHERE b.scrub
    ORDER BY hook.run_id, hook.step, hook.mailbox FOR UPDATE OF hook
), sent AS (
    INSERT INTO perdure.message (run_id, guid, kind, payload, due_at_ms, arrival)
    SELECT run_id, 'm_' || substr(run_id, 3) || '_' || suffix, kind, payload, 0,
           greatest(now_ms, place + coalesce((
               SELECT m.arrival FROM perdure.message AS m
               WHERE left(m.guid, 34) = 'm_' || substr(target.run_id, 3) AND m.state = 'pending' AND (m.due_at_ms = 0) IS TRUE
               ORDER BY m.arrival DESC LIMIT 1), 0))
    FROM (
        SELECT run_id, kind, payload, suffix, now_ms, place FROM scrubbed
        UNION ALL
        SELECT hook.run_id, b.kind, b.payload, b.suffix, b.now_ms, b.place
        FROM b
        JOIN perdure.hook AS hook ON hook.mailbox = b.mailbox AND hook.kind = 'key'
        JOIN perdure.run AS run ON run.id = hook.run_id AND run.closed_at_ms IS NULL
        WHERE NOT b.scrub
    ) AS target
    ON CONFLICT (run_id, guid) DO NOTHING
), kept AS (
    INSERT INTO perdure.hook (run_id, step, kind, mailbox, topic, key, since_ms)
    SELECT DISTINCT run_id, step, 'key', 'scrubbed ' || mailbox, topic, key, since_ms FROM scrubbed
    ON CONFLICT (run_id, step, kind, mailbox) DO NOTHING
)
DELETE FROM perdure.hook AS hook USING scrubbed
WHERE hook.run_id = scrubbed.run_id AND hook.step = scrubbed.step AND hook.mailbox = scrubbed.mailbox
  AND hook.kind = 'key'

-- name: select_tracked
-- The stored counts of these nodes.
SELECT readiness.run_id, readiness.step, readiness.required, readiness.completed
FROM perdure.readiness AS readiness
JOIN unnest($1::text[], $2::text[]) AS b (run_id, step)
  ON readiness.run_id = b.run_id AND readiness.step = b.step

-- name: match_hooks
-- Commits: messages to mailboxes are addressed, under their GUIDs, to the steps of open runs that wait there: the first
-- due message to the oldest hook. A matched hook is deleted. A message that its run has recorded already is deleted, and
-- the hook stays. Returns the messages as they are now.
-- Locks: pairs of message and hook; those that another host matches now are skipped, not waited for.
-- Starts from due messages, by their index: they are few, and hooks may be many. For bounds that it can't look up, and
-- conditions in place of joins, the planner assumes few rows.
WITH mailbox AS MATERIALIZED (
    SELECT DISTINCT m.run_id AS id FROM perdure.message AS m
    WHERE m.state = 'pending'
      AND m.due_at_ms BETWEEN (SELECT '-9223372036854775808'::bigint) AND (SELECT $1::bigint)
      AND (SELECT true FROM perdure.hook AS hook
           WHERE hook.mailbox = m.run_id AND hook.kind = 'wait'
             AND (SELECT run.closed_at_ms IS NULL FROM perdure.run AS run WHERE run.id = hook.run_id)
           LIMIT 1)
    LIMIT $2
), sent AS MATERIALIZED (
    SELECT mailbox.id AS mailbox, one.guid,
           row_number() OVER (PARTITION BY mailbox.id ORDER BY one.arrival, one.guid) AS place
    FROM mailbox CROSS JOIN LATERAL (
        SELECT m.guid, m.arrival FROM perdure.message AS m
        WHERE m.run_id = mailbox.id AND m.state = 'pending' AND m.due_at_ms <= $1
        ORDER BY m.arrival, m.guid LIMIT $2
    ) AS one
), waiting AS MATERIALIZED (
    SELECT mailbox.id AS mailbox, one.run_id, one.step,
           row_number() OVER (PARTITION BY mailbox.id ORDER BY one.since_ms, one.run_id, one.step) AS place
    FROM mailbox CROSS JOIN LATERAL (
        SELECT hook.run_id, hook.step, hook.since_ms FROM perdure.hook AS hook
        WHERE hook.mailbox = mailbox.id AND hook.kind = 'wait'
          AND (SELECT run.closed_at_ms IS NULL FROM perdure.run AS run WHERE run.id = hook.run_id)
        ORDER BY hook.since_ms, hook.run_id, hook.step LIMIT $2
    ) AS one
), pair AS MATERIALIZED (
    SELECT m.run_id AS mailbox, m.guid, hook.run_id, hook.step
    FROM sent
    JOIN waiting ON waiting.mailbox = sent.mailbox AND waiting.place = sent.place
    JOIN perdure.message AS m ON m.run_id = sent.mailbox AND m.guid = sent.guid AND m.state = 'pending'
    JOIN perdure.hook AS hook ON hook.run_id = waiting.run_id AND hook.step = waiting.step
                             AND hook.mailbox = waiting.mailbox AND hook.kind = 'wait'
    ORDER BY m.arrival, m.guid LIMIT $2
    FOR UPDATE OF m, hook SKIP LOCKED
), taken AS (
    DELETE FROM perdure.message AS m USING pair
    WHERE m.run_id = pair.mailbox AND m.guid = pair.guid
    RETURNING pair.run_id, m.guid, m.kind, pair.step, m.payload, m.due_at_ms, m.arrival
), moved AS (
    INSERT INTO perdure.message (run_id, guid, kind, step, payload, due_at_ms, arrival)
    SELECT * FROM taken
    ON CONFLICT (run_id, guid) DO NOTHING
    RETURNING run_id, guid, kind, due_at_ms, arrival, step, payload
)
DELETE FROM perdure.hook AS hook USING moved JOIN pair ON pair.run_id = moved.run_id AND pair.guid = moved.guid
WHERE hook.run_id = pair.run_id AND hook.step = pair.step AND hook.mailbox = pair.mailbox AND hook.kind = 'wait'
RETURNING moved.run_id, moved.guid, moved.kind, moved.due_at_ms, moved.arrival, moved.step, moved.payload

-- name: select_readiness
SELECT step, required, completed FROM perdure.readiness WHERE run_id = $1 ORDER BY step

-- name: select_inbox
SELECT step, source, variable, position, value FROM perdure.inbox
WHERE run_id = $1 ORDER BY step, position, source, variable

-- name: select_waits
SELECT run_id, step, kind, mailbox, topic, key, since_ms FROM perdure.hook
WHERE run_id = $1 AND kind = 'wait' ORDER BY step, mailbox

-- name: select_all_readiness
SELECT run_id, step, required, completed FROM perdure.readiness WHERE run_id = ANY ($1::text[])

-- name: select_all_inboxes
SELECT run_id, step, source, variable, position, value FROM perdure.inbox WHERE run_id = ANY ($1::text[])

-- name: select_all_waits
SELECT run_id, step, mailbox FROM perdure.hook WHERE run_id = ANY ($1::text[]) AND kind = 'wait'

-- name: select_statistics
-- How many runs of a program have each value of a search key, by status.
SELECT hook.key, run.status, count(DISTINCT run.id)
FROM perdure.hook AS hook JOIN perdure.run AS run ON run.id = hook.run_id
WHERE hook.kind = 'key' AND hook.topic = $2 AND run.program = $1
GROUP BY hook.key, run.status ORDER BY hook.key, run.status COLLATE "C"

-- name: deploy_program
-- Commits: a version of a program. A version that is stored stays as it is.
INSERT INTO perdure.program (name, version, digest, content, deployed_at_ms)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name, version) DO NOTHING

-- name: select_digest
SELECT digest FROM perdure.program WHERE name = $1 AND version = $2

-- name: lock_versions
-- Locks: the versions of a program, in their order, so that of two concurrent activations one waits for the other.
SELECT version FROM perdure.program WHERE name = $1 ORDER BY version FOR UPDATE

-- name: deactivate_program
-- Commits: no other version of the program is active.
UPDATE perdure.program SET is_active = 0 WHERE name = $1 AND version <> $2 AND is_active = 1

-- name: activate_program
-- Commits: this version is active, if it was not. No other version may be active.
UPDATE perdure.program SET is_active = 1, activations = activations + 1
WHERE name = $1 AND version = $2 AND is_active = 0

-- name: select_programs
-- Versions of all programs, or of one, with the number of open runs of each. NULL names and versions are all.
SELECT program.name, program.version, program.digest, program.content, program.deployed_at_ms, program.is_active,
       program.activations, coalesce(open.runs, 0)
FROM perdure.program AS program
LEFT JOIN (
    SELECT run.program, run.version, count(*) AS runs FROM perdure.run AS run
    WHERE run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0 AND ($1::text IS NULL OR run.program = $1::text)
    GROUP BY run.program, run.version
) AS open ON open.program = program.name AND open.version = program.version
WHERE ($1::text IS NULL OR program.name = $1::text) AND ($2::text IS NULL OR program.version = $2::text)
ORDER BY program.name, program.deployed_at_ms, program.version

-- name: select_deployed
-- Versions of all programs, or of one, with their content, unless its digest is among the known ones.
SELECT name, version, digest,
       CASE WHEN digest IN (SELECT json_array_elements_text($2::text::json)) THEN NULL ELSE content END,
       is_active, activations
FROM perdure.program WHERE ($1::text IS NULL OR name = $1::text) ORDER BY name, deployed_at_ms, version
