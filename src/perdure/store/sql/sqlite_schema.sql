-- The whole schema of a SQLite store as it is now. New stores are made by the migrations; this page is
-- to be read, and a test proves that it equals them. Postgres has the same tables in the schema `perdure`,
-- and one more, for transactions whose connection is lost.
--
-- A store keeps two books of every run, and messages and work on their way to runs:
--
--   perdure_run        one row per run: who may write it, where its journal ends,    key: run
--                      how many obligations are open
--   perdure_event      the journal: what happened, in order, chained by hashes       key: run, seq
--   perdure_ledger     the ledger: 15 digits per account, what has committed         key: run, account
--   perdure_message    messages to a run that it has not recorded yet                key: run, GUID
--   perdure_work       tasks that any host of the right queue may do                 key: run, step
--   perdure_parked_step  steps that have failed and wait for an operator              key: run, step
--   perdure_published  named values that a program lets clients read                 key: run, name
--   perdure_stream     how long each stream of chunks is                             key: run, name
--   perdure_chunk      what programs append to streams, in order                     key: run, name, position
--   perdure_readiness  nodes of graphs that wait for more of their predecessors          key: run, step
--   perdure_inbox      the values that wait for such nodes                               key: run, step, place
--   perdure_hook       steps that wait for a signal, and search keys that find runs         key: run, step, mailbox
--   perdure_program    graphs that were deployed, and which version is active            key: name, version
--   perdure_host       hosts that own runs and do work, and their heartbeats         key: host
--   perdure_operation  ledgers of operations that several processes carry out together   key: operation
--   perdure_operation_log  what happened in operations, line by line                 key: operation, number
--   perdure_schedule   when runs start by themselves                                 key: scope, name
--   perdure_tick       what became of the ticks of schedules                         key: scope, name, number
--   perdure_pending    runs that wait to be admitted, and their places in line       key: run
--   perdure_limit_key  limits, each with one row per scope and key, which admission locks  key: slot
--   perdure_limit_setting  what operators have set for limits                         key: kind, name
--   perdure_bus        event buses that some engine was opened with                  key: name
--   perdure_publication  up to which entry each run is published to a bus          key: bus, run, replay
--   perdure_dead_letter  events that a bus refused                                   key: bus, run, seq
--   perdure_retained   what stays of runs that were erased, archived or purged       key: run
--   perdure_token      who may use the HTTP API                                     key: id
--   perdure_audit      what was asked over the HTTP API, and by whom                 key: id
--   perdure_meta       what the store knows of itself: the schema version            key: name
--
-- Writers. Only the owner of a run writes its row, its events and its ledger, under the fence (epoch, seq, semaphore),
-- and puts and drops its work. It also writes the values that wait for its nodes, and its hooks, which its events
-- record too; but the host that matches a signal with a hook deletes the hook, and a broadcast to a search key may
-- scrub the keys. Any process may add a message, forward one that came for a run that was continued or, until the run
-- is over, append a chunk. A run's owner publishes its values, and so does the host that has claimed a task of it. The
-- holder of a task's token may take it off its queue. A host writes its own row; the host that has taken over all that
-- a dead host had removes the dead host's row. A run's publications are written with the run, and then by the relay that
-- holds them. Everything that one bundle writes commits in one transaction or not at all; the event and the posting that
-- certify the same fact are therefore never apart.
--
-- Lock order: runs that hand their start keys over and then new runs, both in the order of the keys, then run rows in
-- the order of their ids, then, in the order of their keys, published values, then work, events, ledger, messages, then
-- hooks, then streams. Nothing locks a run row after any other row, and nothing but its own statement locks a host. On
-- SQLite one lock covers the file (BEGIN IMMEDIATE), and the order is kept all the same.
-- Admission locks its limits before all else, in the order of their slots, and the place of a pending run before its row: no
-- commit of a run locks either.
--
-- Times are milliseconds since 1970, given by the caller: no statement reads a clock. No foreign keys: a message may
-- arrive before its run, and must not lock it.

-- key             name of the fact
-- value           as text; 'schema_version' counts the migrations that have run
CREATE TABLE perdure_meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- id              'r_' and a UUIDv7: later runs sort later, so inserts stay local
-- scope           tenant, project or environment; '' if there is none
-- program         name of the workflow or graph
-- version, digest which code the run is pinned to
-- key             the caller's start key, unique over scope and program; NULL if it gave none
-- owner           the host that may write the run; NULL if none does, and once the run is over
-- epoch           bumped when the owner changes: a bundle under an older epoch is rejected; 0 while the run is pending
-- seq             number of entries, and so the sequence number of the next
-- head            hash of the last entry
-- semaphore       open obligations; the run is over when it reads 0
-- status          the state that the events fold to
-- created_at_ms   when it was started
-- closed_at_ms    when its last entry was written; NULL while it is open
-- parked          why it is not advanced: its program diverged from the journal, or is not registered; NULL while
--                 it is not parked
-- chain           the first run of the chain that it continues; NULL if it continues none
-- replaced_by     the run that its start key was handed over to, once it had failed or was cancelled; NULL if none
-- parent          the run that gets its result; NULL if no run does
-- forked_from     the run of which it is a fork; NULL if of none
-- error           fingerprint of the error that it failed with; NULL if it has not failed, or the error can't be read
-- slot            the limit, scope and key that the run counts in while it is open, as JSON; NULL if in none
CREATE TABLE perdure_run (
    id            TEXT NOT NULL PRIMARY KEY,
    scope         TEXT NOT NULL,
    program       TEXT NOT NULL,
    version       TEXT NOT NULL,
    digest        TEXT NOT NULL,
    key           TEXT,
    owner         TEXT,
    epoch         INTEGER NOT NULL,
    seq           INTEGER NOT NULL,
    head          BLOB NOT NULL,
    semaphore     INTEGER NOT NULL CHECK (semaphore >= 0),
    status        TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    closed_at_ms  INTEGER,
    parked        TEXT,
    chain         TEXT,
    replaced_by   TEXT,
    parent        TEXT,
    forked_from   TEXT,
    error         TEXT,
    slot          TEXT
) STRICT, WITHOUT ROWID;

-- The runs of a chain, the last one last.
CREATE INDEX perdure_run_chain ON perdure_run (chain, id) WHERE chain IS NOT NULL;
-- One run per start key.
CREATE UNIQUE INDEX perdure_run_key ON perdure_run (scope, program, key)
    WHERE key IS NOT NULL AND replaced_by IS NULL;
-- Runs of a scope and program, as lists show them.
CREATE INDEX perdure_run_place ON perdure_run (scope, program, id);
-- Ended runs in the order in which they ended. Its rows are written once, when a run ends.
CREATE INDEX perdure_run_ended ON perdure_run (status, closed_at_ms, id) WHERE closed_at_ms IS NOT NULL;
-- Child runs.
CREATE INDEX perdure_run_parent ON perdure_run (parent, id) WHERE parent IS NOT NULL;
-- Forks.
CREATE INDEX perdure_run_forks ON perdure_run (forked_from, id) WHERE forked_from IS NOT NULL;
-- Runs that failed with the same error.
CREATE INDEX perdure_run_error ON perdure_run (error, id) WHERE error IS NOT NULL;
-- Parked runs.
CREATE INDEX perdure_run_parked ON perdure_run (id) WHERE parked IS NOT NULL;
-- Open runs of a host, and unowned runs.
CREATE INDEX perdure_run_open ON perdure_run (owner, id) WHERE closed_at_ms IS NULL AND epoch IS NOT 0;
-- For which programs there are runs without an owner.
CREATE INDEX perdure_run_unowned ON perdure_run (program) WHERE owner IS NULL AND closed_at_ms IS NULL AND epoch IS NOT 0;
-- Runs that hold slots of limits.
CREATE INDEX perdure_run_slot ON perdure_run (slot, id) WHERE slot IS NOT NULL AND closed_at_ms IS NULL AND epoch IS NOT 0;

-- run_id, seq     place in the journal; no gaps
-- at_ms           when it was decided
-- body            the event as JSON, without its payload
-- prev            hash of the entry before it; of the run's id for the first
-- sealed          nonce and payload; NULL if there is none, or if it was erased
-- erased          SHA-256 of what was sealed, once that is erased, so that the chain still verifies
--
-- Rows are in the order of insertion, so that the entries of one commit are side by side, whatever their runs.
CREATE TABLE perdure_event (
    run_id TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL,
    body   TEXT NOT NULL,
    prev   BLOB NOT NULL,
    sealed BLOB,
    erased BLOB,
    PRIMARY KEY (run_id, seq)
) STRICT;

-- run_id          whose account it is
-- account         'step:' and a step, or 'message:' and a GUID
-- balance         sum of all postings to it; each digit certifies something
CREATE TABLE perdure_ledger (
    run_id  TEXT NOT NULL,
    account TEXT NOT NULL,
    balance INTEGER NOT NULL CHECK (balance BETWEEN 0 AND 999999999999999),
    PRIMARY KEY (run_id, account)
) STRICT, WITHOUT ROWID;

-- run_id, guid    to whom, and which: a message that is sent twice is one row
-- kind            what it says: a result, a signal, a timer, a cancel
-- step            the step that it concerns; NULL if it concerns the run
-- payload         codec bytes
-- due_at_ms       not delivered before; a timer is a message with a due time. 0: due at once, whatever the time is
-- arrival         sorts the messages of a run; never a cursor, because commit order is not arrival order
-- state           'pending', or not delivered any more: 'stale' or 'dead'. Acknowledged ones are deleted
-- reason          why it is not delivered any more
CREATE TABLE perdure_message (
    run_id    TEXT NOT NULL,
    guid      TEXT NOT NULL,
    kind      TEXT NOT NULL,
    step      TEXT,
    payload   BLOB,
    due_at_ms INTEGER NOT NULL,
    arrival   INTEGER NOT NULL,
    state     TEXT NOT NULL DEFAULT 'pending',
    reason    TEXT,
    PRIMARY KEY (run_id, guid)
) STRICT, WITHOUT ROWID;

-- Messages that are due at once, in order, by the run or mailbox that they were first sent to, with which a GUID begins.
CREATE INDEX perdure_message_order ON perdure_message (substr(guid, 1, 34), arrival) WHERE state = 'pending' AND due_at_ms = 0;
-- Due messages, in the order in which they are delivered.
CREATE INDEX perdure_message_due ON perdure_message (due_at_ms, arrival) WHERE state = 'pending';
-- Messages that are not delivered any more, the oldest first. Operators' acts stay as long as their runs: they are the
-- record of what was decided on runs that are over.
CREATE INDEX perdure_message_aside ON perdure_message (arrival)
    WHERE state <> 'pending' AND substr(kind, 1, 4) <> 'act:';

-- run_id, step    whose task it is: put twice, it is one row
-- guid            the message that will carry its result
-- queue           hosts that serve it may claim the task
-- priority        higher goes first
-- payload         codec bytes of the input
-- available_at_ms not claimed before; while claimed, when the lease ends
-- token           proof of the last claim; NULL before the first
-- host            the host that claimed it last
-- claims          how many hosts claimed it, one after the other, save those that gave it back before it began
-- held            1 while its run is paused: no host claims it
CREATE TABLE perdure_work (
    run_id          TEXT NOT NULL,
    step            TEXT NOT NULL,
    guid            TEXT NOT NULL,
    queue           TEXT NOT NULL,
    priority        INTEGER NOT NULL,
    payload         BLOB,
    available_at_ms INTEGER NOT NULL,
    token           TEXT,
    host            TEXT,
    claims          INTEGER NOT NULL DEFAULT 0,
    held            INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

-- Hosts that have claimed tasks.
CREATE INDEX perdure_work_host ON perdure_work (host) WHERE host IS NOT NULL;
-- The most urgent task of a queue.
CREATE INDEX perdure_work_queue ON perdure_work (queue, priority DESC, available_at_ms) WHERE held = 0;

-- run_id, step    a step whose logical attempt has failed: it waits for an operator, who retries or skips it
-- task            what the step calls
-- error           fingerprint of its last error
-- since_ms        when it failed
CREATE TABLE perdure_parked_step (
    run_id   TEXT NOT NULL,
    step     TEXT NOT NULL,
    task     TEXT NOT NULL,
    error    TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

-- Runs with steps that failed for the same cause, in the order of lists.
CREATE INDEX perdure_parked_step_error ON perdure_parked_step (error, run_id);

-- run_id, name    whose value it is, and what the program calls it: the newest of each name is kept
-- payload         codec bytes
-- at_ms           when it was published, or later: shows whether a value that is sent again is older than the stored one
CREATE TABLE perdure_published (
    run_id  TEXT NOT NULL,
    name    TEXT NOT NULL,
    payload BLOB NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

-- run_id, name    whose stream it is, and what the program calls it
-- length          how many chunks it has; an append locks this row first, so positions have no gaps
CREATE TABLE perdure_stream (
    run_id TEXT NOT NULL,
    name   TEXT NOT NULL,
    length INTEGER NOT NULL,
    PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

-- run_id, name    whose stream it belongs to
-- position        its place there: 0, 1, 2 and so on, in the order of commits
-- step            the step that appended it; 'root' if the workflow itself did
-- attempt, claim  which attempt of that step; of a queued one, under which claim of its work
-- number          counts the chunks of that step, attempt and claim in this stream
-- payload         codec bytes
-- at_ms           when it was appended
CREATE TABLE perdure_chunk (
    run_id   TEXT NOT NULL,
    name     TEXT NOT NULL,
    position INTEGER NOT NULL,
    step     TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    claim    INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    payload  BLOB NOT NULL,
    at_ms    INTEGER NOT NULL,
    PRIMARY KEY (run_id, name, position)
) STRICT, WITHOUT ROWID;

-- A chunk that is written again after an unknown outcome is the same chunk. And which chunks an
-- attempt has.
CREATE UNIQUE INDEX perdure_chunk_number ON perdure_chunk (run_id, name, step, attempt, claim, number);

-- run_id, step    a node of a graph that some of its predecessors have reached, and that is not ready yet: the row is
--                 there from the first of them to its readiness
-- required        how many predecessors it waits for
-- completed       how many of them are resolved: they ran, or never will
CREATE TABLE perdure_readiness (
    run_id    TEXT NOT NULL,
    step      TEXT NOT NULL,
    required  INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    CHECK (completed BETWEEN 0 AND required),
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

-- run_id, step    the node that the value waits for
-- position        which item of a spread it comes from; -1 if it comes from none
-- source          the step that sent it
-- variable        what the node will call it
-- value           codec bytes
CREATE TABLE perdure_inbox (
    run_id   TEXT NOT NULL,
    step     TEXT NOT NULL,
    position INTEGER NOT NULL,
    source   TEXT NOT NULL,
    variable TEXT NOT NULL,
    value    BLOB NOT NULL,
    PRIMARY KEY (run_id, step, position, source, variable)
) STRICT, WITHOUT ROWID;

-- run_id, step    the step that waits, or the run that is found
-- kind            'wait': the step waits for one signal to the topic and the key. 'key': the run is found by a search key
-- mailbox         the id that topic and key have together, of the form of a run's: signals for a waiting step are
--                 messages to it. 'scrubbed ' before it: signals to the search key do not find the run, statistics do
-- topic, key      of a search key: its name, and its value
-- since_ms        since when it waits: the oldest hook is served first
CREATE TABLE perdure_hook (
    run_id   TEXT NOT NULL,
    step     TEXT NOT NULL,
    kind     TEXT NOT NULL CHECK (kind IN ('wait', 'key')),
    mailbox  TEXT NOT NULL,
    topic    TEXT NOT NULL,
    key      TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (run_id, step, kind, mailbox)
) STRICT, WITHOUT ROWID;

-- Steps that wait for a signal, the oldest first; and runs that a search key finds.
CREATE INDEX perdure_hook_mailbox ON perdure_hook (mailbox, kind, since_ms);
-- Runs that have a tag or search key, and how its values are spread.
CREATE INDEX perdure_hook_key ON perdure_hook (topic, key, run_id) WHERE kind = 'key';

-- name, version   a graph that was deployed: what runs of that version execute
-- digest          of its content: a version means one thing for ever
-- content         the graph as JSON
-- deployed_at_ms  when it was deployed
-- is_active       1 if new runs are of this version, else 0
-- activations     how often it was made the active one: 0 if it never was
CREATE TABLE perdure_program (
    name           TEXT NOT NULL,
    version        TEXT NOT NULL,
    digest         TEXT NOT NULL,
    content        TEXT NOT NULL,
    deployed_at_ms INTEGER NOT NULL,
    is_active      INTEGER NOT NULL DEFAULT 0,
    activations    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

-- One active version of each.
CREATE UNIQUE INDEX perdure_program_active ON perdure_program (name) WHERE is_active = 1;
-- Every host snapshot sums these: the sum shows whether something changed.
CREATE INDEX perdure_program_activations ON perdure_program (activations);

-- id              says on which machine, since which boot, by which process it was made
-- beat            grows while the host lives; only its change has a meaning
-- stale_after_ms  how long its beat may stay unchanged before other hosts consider it dead
-- queues          whose tasks it does, as a JSON list
-- started_at_ms   when it registered
CREATE TABLE perdure_host (
    id             TEXT NOT NULL PRIMARY KEY,
    beat           INTEGER NOT NULL,
    stale_after_ms INTEGER NOT NULL,
    queues         TEXT NOT NULL,
    started_at_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- id              names the operation: begins with the time of its creation, so later ones sort later
-- state           'running', 'cleanup', 'failed' or 'completed', as in the data
-- data            the ledger as JSON: participants' calls, heartbeats, resources
-- backed_up       1 once it is over and kept for reference only, else 0
CREATE TABLE perdure_operation (
    id        TEXT NOT NULL PRIMARY KEY,
    state     TEXT NOT NULL,
    data      TEXT NOT NULL,
    backed_up INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Operations under way, and the oldest backups.
CREATE INDEX perdure_operation_backup ON perdure_operation (backed_up, id);

-- operation_id, number place in the log of an operation; the operation's row is locked by the append
-- level           'debug', 'info', 'warning' or 'error'
-- line            as people read it
CREATE TABLE perdure_operation_log (
    operation_id TEXT NOT NULL,
    number       INTEGER NOT NULL,
    level        TEXT NOT NULL,
    line         TEXT NOT NULL,
    PRIMARY KEY (operation_id, number)
) STRICT, WITHOUT ROWID;

-- Views for the user's SQL. Columns of a version are added, never changed or removed.

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
-- scope, name     which schedule
-- program         whose runs it starts
-- payload         their arguments, as codec bytes
-- state           timetable, rules, and starts that are decided and not carried out, as JSON
-- look_at_ms      when a host must look at it; NULL if never
-- revision        counts the writes; a write that was decided on an older one changes nothing
CREATE TABLE perdure_schedule (
    scope      TEXT NOT NULL,
    name       TEXT NOT NULL,
    program    TEXT NOT NULL,
    payload    BLOB NOT NULL,
    state      TEXT NOT NULL,
    look_at_ms INTEGER,
    revision   INTEGER NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- Schedules in the order in which hosts must look at them.
CREATE INDEX perdure_schedule_due ON perdure_schedule (look_at_ms) WHERE look_at_ms IS NOT NULL;

-- scope, name     of which schedule; its row is written by the same commit
-- number          counts its ticks; old ones are deleted
-- body            what became of the tick, as JSON
CREATE TABLE perdure_tick (
    scope      TEXT NOT NULL,
    name       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (scope, name, number)
) STRICT, WITHOUT ROWID;

-- name            of an event bus that some engine was opened with
-- programs        JSON list of the programs whose runs it gets; NULL if of all
-- since_ms        when it was registered: runs that were started before are published from where they were then on
-- down_since_ms   since when it takes no events, as a host saw last; NULL if it takes them
-- error           why
CREATE TABLE perdure_bus (
    name          TEXT NOT NULL PRIMARY KEY,
    programs      TEXT,
    since_ms      INTEGER NOT NULL,
    down_since_ms INTEGER,
    error         TEXT
) STRICT, WITHOUT ROWID;

-- bus, run_id     which run is published to which bus
-- replay          '' for the run as it advances; otherwise names a request to publish a part of it again
-- seq             the next entry to publish: all before it are published, or dead letters
-- end_seq         where a replay ends; NULL if with the run. The row is deleted when all is published
-- holder          the relay that publishes it; NULL if none does
-- lease_until_ms  until when no other relay may take it
CREATE TABLE perdure_publication (
    bus            TEXT NOT NULL,
    run_id         TEXT NOT NULL,
    replay         TEXT NOT NULL,
    seq            INTEGER NOT NULL,
    end_seq        INTEGER,
    holder         TEXT,
    lease_until_ms INTEGER NOT NULL,
    PRIMARY KEY (bus, run_id, replay)
) STRICT, WITHOUT ROWID;

-- bus, run_id     which bus refused an event of which run
-- seq             the entry of the event
-- type            of the event
-- reason          what the bus said last
-- tries           how often it was tried
-- at_ms           when it was given up
CREATE TABLE perdure_dead_letter (
    bus    TEXT NOT NULL,
    run_id TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    type   TEXT NOT NULL,
    reason TEXT NOT NULL,
    tries  INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL,
    PRIMARY KEY (bus, run_id, seq)
) STRICT, WITHOUT ROWID;

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

-- run_id          which run waits; it has no entries, and its row has epoch 0
-- slot            the limit, scope and key for which it waits, as in its own row; '' if for none
-- scope, program  those of the run
-- priority        higher goes first, within a scope
-- state           'ready' for a slot, 'delayed' until a time, or 'waiting' for approval
-- ready_at_ms     not admitted before
-- until_ms        the latest time to which later starts with its key may put it off; NULL if they may not
CREATE TABLE perdure_pending (
    run_id      TEXT NOT NULL PRIMARY KEY,
    slot        TEXT NOT NULL,
    scope       TEXT NOT NULL,
    program     TEXT NOT NULL,
    priority    INTEGER NOT NULL,
    state       TEXT NOT NULL,
    ready_at_ms INTEGER NOT NULL,
    until_ms    INTEGER
) STRICT, WITHOUT ROWID;

-- Runs that are ready, in the order in which each scope has its turn.
CREATE INDEX perdure_pending_line ON perdure_pending (slot, scope, priority DESC, run_id) WHERE state = 'ready';
-- How many runs wait for a slot.
CREATE INDEX perdure_pending_slot ON perdure_pending (slot, run_id);
-- Delayed runs in the order in which they become ready.
CREATE INDEX perdure_pending_delayed ON perdure_pending (ready_at_ms, run_id) WHERE state = 'delayed';

-- slot            name of the limit, scope (NULL if it counts all scopes together) and key, as JSON
-- name            name of the limit
-- rules           what the code says about the limit, as JSON: those of the newest start
-- served          the scope whose run was admitted last
-- arrival_us      when the rate allows the next admission, at an even pace
CREATE TABLE perdure_limit_key (
    slot       TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    rules      TEXT NOT NULL,
    served     TEXT NOT NULL,
    arrival_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- kind, name      what is set: a limit, a queue or a program
-- body            the operator's values, as JSON: they replace those of the code
-- at_ms           when it was set
CREATE TABLE perdure_limit_setting (
    kind  TEXT NOT NULL,
    name  TEXT NOT NULL,
    body  TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- Limits. `scope` is NULL if the limit counts all scopes together; `rules` are the code's, `setting` the operator's, as
-- JSON.
CREATE VIEW perdure_v1_limits AS
SELECT known.name, known.slot ->> '$[1]' AS scope, known.slot ->> '$[2]' AS key,
       (SELECT count(*) FROM perdure_run AS run
        WHERE run.slot = known.slot AND run.slot IS NOT NULL AND run.closed_at_ms IS NULL AND run.epoch IS NOT 0) AS running,
       (SELECT count(*) FROM perdure_pending AS pending WHERE pending.slot = known.slot) AS waiting,
       known.rules, coalesce(setting.body, '') AS setting
FROM perdure_limit_key AS known
LEFT JOIN perdure_limit_setting AS setting ON setting.kind = 'limit' AND setting.name = known.name;

-- run_id          a run that was erased, archived or purged
-- scope, program, status, created_at_ms, closed_at_ms  as its row had them
-- entries, head   length and last hash of its journal: an archive is verified against them
-- parent, forked_from, chain  as its row had them
-- archive         the object that holds it; NULL if it is not archived
-- receipt         what was erased, as JSON with hashes; NULL if nothing was
-- purged_at_ms    when it was purged; NULL if it was not
-- is_unfinished   1 while objects of it, in the archive or among artifacts, are still to be deleted
CREATE TABLE perdure_retained (
    run_id        TEXT NOT NULL PRIMARY KEY,
    scope         TEXT NOT NULL,
    program       TEXT NOT NULL,
    status        TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    closed_at_ms  INTEGER NOT NULL,
    entries       INTEGER NOT NULL,
    head          BLOB NOT NULL,
    parent        TEXT,
    forked_from   TEXT,
    chain         TEXT,
    archive       TEXT,
    receipt       TEXT,
    purged_at_ms  INTEGER,
    is_unfinished INTEGER NOT NULL DEFAULT 0 CHECK (is_unfinished IN (0, 1))
) STRICT, WITHOUT ROWID;

-- Archived runs in the order in which they ended.
CREATE INDEX perdure_retained_archived ON perdure_retained (status, closed_at_ms, run_id) WHERE archive IS NOT NULL;
-- Archived child runs.
CREATE INDEX perdure_retained_parent ON perdure_retained (parent) WHERE archive IS NOT NULL AND parent IS NOT NULL;
-- Archived forks.
CREATE INDEX perdure_retained_forks ON perdure_retained (forked_from) WHERE archive IS NOT NULL AND forked_from IS NOT NULL;
-- Archived runs of a chain.
CREATE INDEX perdure_retained_chain ON perdure_retained (chain) WHERE archive IS NOT NULL AND chain IS NOT NULL;
-- Runs with objects that are still to be deleted.
CREATE INDEX perdure_retained_unfinished ON perdure_retained (run_id) WHERE is_unfinished = 1;
-- id              the public part of a token
-- hash            SHA-256 of its secret part, which the store never has
-- label           what it is for
-- role            what its bearer may do: viewer, operator, engineer, admin
-- scope           whose runs: this scope and those below it; NULL for all
-- created_at_ms   when it was made
-- expires_at_ms   from when on it is refused; NULL for never
-- revoked_at_ms   when it was revoked; NULL if it was not
CREATE TABLE perdure_token (
    id            TEXT NOT NULL PRIMARY KEY,
    hash          BLOB NOT NULL,
    label         TEXT NOT NULL,
    role          TEXT NOT NULL,
    scope         TEXT,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    revoked_at_ms INTEGER
) STRICT, WITHOUT ROWID;

-- id              16 hex digits of the time, then random ones: later records sort later
-- at_ms           when it was asked for
-- actor, role     who asked: the label of a token and its role, or the user of a command
-- action          an act, or a change of schedules or tokens, such as 'PAUSE' or 'token.create'
-- target          what it was about: a run, a schedule, a token
-- scope           that of the target
-- reason          as the actor gave it
-- outcome         'accepted', or the code of the refusal
CREATE TABLE perdure_audit (
    id      TEXT NOT NULL PRIMARY KEY,
    at_ms   INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    role    TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    scope   TEXT NOT NULL,
    reason  TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT, WITHOUT ROWID;
