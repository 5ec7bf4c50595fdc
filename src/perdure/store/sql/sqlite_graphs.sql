-- Statements on the tables of graphs in a SQLite store. `:rows` stands for as many rows of parameters as there are.

-- name: clear_runs
-- Commits: these runs have no waiting node.
DELETE FROM perdure_readiness WHERE run_id IN (VALUES :rows)

-- name: empty_runs
-- Commits: no value waits for a node of these runs.
DELETE FROM perdure_inbox WHERE run_id IN (VALUES :rows)

-- name: unhook_runs
-- Commits: these runs have no hook.
DELETE FROM perdure_hook WHERE kind = 'wait' AND run_id IN (VALUES :rows)

-- name: clear_steps
-- Commits: these nodes do not wait.
DELETE FROM perdure_readiness WHERE (run_id, step) IN (VALUES :rows)

-- name: empty_steps
-- Commits: no value waits for these nodes.
DELETE FROM perdure_inbox WHERE (run_id, step) IN (VALUES :rows)

-- name: unhook_steps
-- Commits: these steps have no hook.
DELETE FROM perdure_hook WHERE kind = 'wait' AND (run_id, step) IN (VALUES :rows)

-- name: track
-- Commits: more resolved predecessors of nodes, up to the required number. A row changes nothing if it would exceed
-- that number, or if the number differs from the stored one: the count of rows shows that.
INSERT INTO perdure_readiness (run_id, step, required, completed)
VALUES :rows
ON CONFLICT (run_id, step) DO UPDATE SET completed = completed + excluded.completed
WHERE required = excluded.required AND completed + excluded.completed <= required

-- name: deliver
-- Commits: values that wait for nodes. The primary key refuses a second one at the same place.
INSERT INTO perdure_inbox (run_id, step, position, source, variable, value)
VALUES :rows

-- name: hook
-- Commits: hooks, once each.
INSERT INTO perdure_hook (run_id, step, kind, mailbox, topic, key, since_ms)
VALUES :rows
ON CONFLICT (run_id, step, kind, mailbox) DO NOTHING

-- name: broadcast
-- Commits: messages to all open runs that search keys find, once per GUID. They are due at once, and arrive after
-- pending ones, as those of `enqueue`. The sixth value numbers the broadcasts of one group.
INSERT INTO perdure_message (run_id, guid, kind, payload, due_at_ms, arrival)
SELECT run.id, 'm_' || substr(run.id, 3) || '_' || b.column4, b.column2, b.column3, 0,
       max(b.column5, b.column6 + coalesce((
           SELECT m.arrival FROM perdure_message AS m INDEXED BY perdure_message_order
           WHERE substr(m.guid, 1, 34) = 'm_' || substr(run.id, 3) AND m.state = 'pending' AND m.due_at_ms = 0
           ORDER BY m.arrival DESC LIMIT 1), 0))
FROM (VALUES :rows) AS b
CROSS JOIN perdure_hook AS hook ON hook.mailbox = b.column1 AND hook.kind = 'key'
CROSS JOIN perdure_run AS run ON run.id = hook.run_id
WHERE run.closed_at_ms IS NULL
ON CONFLICT (run_id, guid) DO NOTHING

-- name: scrub
-- Commits: broadcasts to these search keys no longer find their open runs; statistics still count them. A row that was
-- scrubbed before, and whose run got the key again, is replaced.
UPDATE OR REPLACE perdure_hook SET mailbox = 'scrubbed ' || mailbox
WHERE kind = 'key' AND mailbox IN (VALUES :rows)
  AND EXISTS (SELECT 1 FROM perdure_run AS run WHERE run.id = perdure_hook.run_id AND run.closed_at_ms IS NULL)

-- name: select_tracked
-- The stored counts of these nodes.
SELECT run_id, step, required, completed FROM perdure_readiness WHERE (run_id, step) IN (VALUES :rows)

-- name: select_matches
-- Which messages to mailboxes are for which hooks of open runs: the first due message for the oldest hook.
-- Starts from due messages, by their index: they are few, and hooks may be many.
WITH mailbox (id) AS MATERIALIZED (
    SELECT DISTINCT m.run_id FROM perdure_message AS m INDEXED BY perdure_message_due
    WHERE m.state = 'pending' AND m.due_at_ms <= :now_ms
      AND EXISTS (SELECT 1 FROM perdure_hook AS hook CROSS JOIN perdure_run AS run ON run.id = hook.run_id
                  WHERE hook.mailbox = m.run_id AND hook.kind = 'wait' AND run.closed_at_ms IS NULL)
    LIMIT :limit
), sent AS (
    SELECT m.run_id AS mailbox, m.guid, m.arrival,
           row_number() OVER (PARTITION BY m.run_id ORDER BY m.arrival, m.guid) AS place
    FROM mailbox CROSS JOIN perdure_message AS m ON m.run_id = mailbox.id
    WHERE m.state = 'pending' AND m.due_at_ms <= :now_ms
), waiting AS (
    SELECT hook.mailbox, hook.run_id, hook.step,
           row_number() OVER (PARTITION BY hook.mailbox ORDER BY hook.since_ms, hook.run_id, hook.step) AS place
    FROM mailbox
    CROSS JOIN perdure_hook AS hook ON hook.mailbox = mailbox.id AND hook.kind = 'wait'
    CROSS JOIN perdure_run AS run ON run.id = hook.run_id AND run.closed_at_ms IS NULL
)
SELECT sent.mailbox, sent.guid, waiting.run_id, waiting.step
FROM sent JOIN waiting ON waiting.mailbox = sent.mailbox AND waiting.place = sent.place
ORDER BY sent.arrival, sent.guid LIMIT :limit

-- name: move_messages
-- Commits: messages are addressed, under their GUIDs, to the runs and steps of their hooks. Returns those that are new
-- there. `acknowledge` deletes them from their mailboxes.
INSERT INTO perdure_message (run_id, guid, kind, step, payload, due_at_ms, arrival)
SELECT b.column3, m.guid, m.kind, b.column4, m.payload, m.due_at_ms, m.arrival
FROM (VALUES :rows) AS b CROSS JOIN perdure_message AS m ON m.run_id = b.column1 AND m.guid = b.column2
WHERE true
ON CONFLICT (run_id, guid) DO NOTHING
RETURNING run_id, guid, kind, due_at_ms, arrival, step, payload

-- name: take_hooks
-- Commits: hooks that got their message, or tags that have other values now, are deleted.
DELETE FROM perdure_hook WHERE (run_id, step, kind, mailbox) IN (VALUES :rows)

-- name: select_readiness
SELECT step, required, completed FROM perdure_readiness WHERE run_id = :run_id ORDER BY step

-- name: select_inbox
SELECT step, source, variable, position, value FROM perdure_inbox
WHERE run_id = :run_id ORDER BY step, position, source, variable

-- name: select_waits
SELECT run_id, step, kind, mailbox, topic, key, since_ms FROM perdure_hook
WHERE run_id = :run_id AND kind = 'wait' ORDER BY step, mailbox

-- name: select_all_readiness
SELECT run_id, step, required, completed FROM perdure_readiness WHERE run_id IN (SELECT value FROM json_each(:ids))

-- name: select_all_inboxes
SELECT run_id, step, source, variable, position, value FROM perdure_inbox
WHERE run_id IN (SELECT value FROM json_each(:ids))

-- name: select_all_waits
SELECT run_id, step, mailbox FROM perdure_hook
WHERE run_id IN (SELECT value FROM json_each(:ids)) AND kind = 'wait'

-- name: select_statistics
-- How many runs of a program have each value of a search key, by status.
SELECT hook.key, run.status, count(DISTINCT run.id)
FROM perdure_hook AS hook CROSS JOIN perdure_run AS run ON run.id = hook.run_id
WHERE hook.kind = 'key' AND hook.topic = :name AND run.program = :program
GROUP BY hook.key, run.status ORDER BY hook.key, run.status

-- name: deploy_program
-- Commits: a version of a program. A version that is stored stays as it is.
INSERT INTO perdure_program (name, version, digest, content, deployed_at_ms)
VALUES (:name, :version, :digest, :content, :at_ms)
ON CONFLICT (name, version) DO NOTHING

-- name: select_digest
SELECT digest FROM perdure_program WHERE name = :name AND version = :version

-- name: lock_versions
-- The versions of a program.
SELECT version FROM perdure_program WHERE name = :name ORDER BY version

-- name: deactivate_program
-- Commits: no other version of the program is active.
UPDATE perdure_program SET is_active = 0 WHERE name = :name AND version <> :version AND is_active = 1

-- name: activate_program
-- Commits: this version is active, if it was not. No other version may be active.
UPDATE perdure_program SET is_active = 1, activations = activations + 1
WHERE name = :name AND version = :version AND is_active = 0

-- name: select_programs
-- Versions of all programs, or of one, with the number of open runs of each. NULL names and versions are all.
SELECT program.name, program.version, program.digest, program.content, program.deployed_at_ms, program.is_active,
       program.activations, coalesce(open.runs, 0)
FROM perdure_program AS program
LEFT JOIN (
    SELECT run.program, run.version, count(*) AS runs FROM perdure_run AS run
    WHERE run.closed_at_ms IS NULL AND run.epoch IS NOT 0 AND (:name IS NULL OR run.program = :name)
    GROUP BY run.program, run.version
) AS open ON open.program = program.name AND open.version = program.version
WHERE (:name IS NULL OR program.name = :name) AND (:version IS NULL OR program.version = :version)
ORDER BY program.name, program.deployed_at_ms, program.version

-- name: select_deployed
-- Versions of all programs, or of one, with their content, unless its digest is among the known ones.
SELECT name, version, digest,
       CASE WHEN digest IN (SELECT value FROM json_each(:known)) THEN NULL ELSE content END,
       is_active, activations
FROM perdure_program WHERE (:name IS NULL OR name = :name) ORDER BY name, deployed_at_ms, version
