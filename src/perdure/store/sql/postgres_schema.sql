-- The whole schema of a Postgres store as it is now. New stores are made by the migrations; this page is
-- to be read, and a test proves that it equals them. SQLite has the same tables, named `perdure_run` and so on, except
-- `outcome`: it has no connection that could be lost.
--
-- A store keeps two books of every run, and messages and work on their way to runs:
--
--   perdure.run        one row per run: who may write it, where its journal ends,    key: run
--                      how many obligations are open
--   perdure.event      the journal: what happened, in order, chained by hashes       key: run, seq
--   perdure.ledger     the ledger: 15 digits per account, what has committed         key: run, account
--   perdure.message    messages to a run that it has not recorded yet                key: run, GUID
--   perdure.work       tasks that any host of the right queue may do                 key: run, step
--   perdure.parked_step  steps that have failed and wait for an operator              key: run, step
--   perdure.published  named values that a program lets clients read                 key: run, name
--   perdure.stream     how long each stream of chunks is                             key: run, name
--   perdure.chunk      what programs append to streams, in order                     key: run, name, position
--   perdure.readiness  nodes of graphs that wait for more of their predecessors          key: run, step
--   perdure.inbox      the values that wait for such nodes                               key: run, step, place
--   perdure.hook       steps that wait for a signal, and search keys that find runs         key: run, step, mailbox
--   perdure.program    graphs that were deployed, and which version is active            key: name, version
--   perdure.host       hosts that own runs and do work, and their heartbeats         key: host
--   perdure.operation  ledgers of operations that several processes carry out together   key: operation
--   perdure.operation_log  what happened in operations, line by line                 key: operation, number
--   perdure.schedule   when runs start by themselves                                 key: scope, name
--   perdure.tick       what became of the ticks of schedules                         key: scope, name, number
--   perdure.pending    runs that wait to be admitted, and their places in line       key: run
--   perdure.limit_key  limits, each with one row per scope and key, which admission locks  key: slot
--   perdure.limit_setting  what operators have set for limits                         key: kind, name
--   perdure.bus        event buses that some engine was opened with                  key: name
--   perdure.publication  up to which entry each run is published to a bus          key: bus, run, replay
--   perdure.dead_letter  events that a bus refused                                   key: bus, run, seq
--   perdure.retained   what stays of runs that were erased, archived or purged       key: run
--   perdure.token      who may use the HTTP API                                     key: id
--   perdure.audit      what was asked over the HTTP API, and by whom                 key: id
--   perdure.outcome    outcomes of transactions, while a host may ask for them      key: token
--   perdure.meta       what the store knows of itself: the schema version            key: name
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
-- hooks, then streams. Nothing locks a run row after any other row, except that appending chunks keeps their runs from
-- ending meanwhile, and publishing for tasks keeps the runs of that host from being taken over: only the end of a run,
-- or its takeover, waits for that, and the lock timeout ends a deadlock of two of these. Nothing but its own statement
-- locks a host. The claims of work and of unowned runs, and the matching of signals with hooks, skip what is locked, so
-- they never wait. Activating a version locks the versions of that program, and nothing else.
-- Admission locks its limits before all else, in the order of their slots, and the place of a pending run before its row: no
-- commit of a run locks either.
--
-- Times are milliseconds since 1970, given by the caller: no statement reads a clock, save for the age of outcomes. No
-- foreign keys: a message may arrive before its run, and must not lock it. Ids compare bytewise (COLLATE "C"): cheaper,
-- and the same order in every locale. Tables whose rows are updated in place keep room for that (fillfactor).

CREATE SCHEMA perdure;

-- key             name of the fact
-- value           as text; 'schema_version' counts the migrations that have run
CREATE TABLE perdure.meta (
    key   text NOT NULL PRIMARY KEY,
    value text NOT NULL
);

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
CREATE TABLE perdure.run (
    id            text COLLATE "C" NOT NULL PRIMARY KEY,
    scope         text COLLATE "C" NOT NULL,
    program       text COLLATE "C" NOT NULL,
    version       text NOT NULL,
    digest        text NOT NULL,
    key           text COLLATE "C",
    owner         text COLLATE "C",
    epoch         bigint NOT NULL,
    seq           bigint NOT NULL,
    head          bytea NOT NULL,
    semaphore     bigint NOT NULL CHECK (semaphore >= 0),
    status        text NOT NULL,
    created_at_ms bigint NOT NULL,
    closed_at_ms  bigint,
    parked        text,
    chain         text COLLATE "C",
    replaced_by   text COLLATE "C",
    parent        text COLLATE "C",
    forked_from   text COLLATE "C",
    error         text COLLATE "C",
    slot          text COLLATE "C"
) WITH (fillfactor = 80);

-- The runs of a chain, the last one last.
CREATE INDEX run_chain ON perdure.run (chain, id) WHERE chain IS NOT NULL;
-- One run per start key.
CREATE UNIQUE INDEX run_key ON perdure.run (scope, program, key)
    WHERE key IS NOT NULL AND replaced_by IS NULL;
-- Runs of a scope and program, as lists show them.
CREATE INDEX run_place ON perdure.run (scope, program, id);
-- Ended runs in the order in which they ended. Its rows are written once, when a run ends.
CREATE INDEX run_ended ON perdure.run (status, closed_at_ms, id) WHERE closed_at_ms IS NOT NULL;
-- Child runs.
CREATE INDEX run_parent ON perdure.run (parent, id) WHERE parent IS NOT NULL;
-- Forks.
CREATE INDEX run_forks ON perdure.run (forked_from, id) WHERE forked_from IS NOT NULL;
-- Runs that failed with the same error.
CREATE INDEX run_error ON perdure.run (error, id) WHERE error IS NOT NULL;
-- Parked runs.
CREATE INDEX run_parked ON perdure.run (id) WHERE parked IS NOT NULL;
-- Open runs of a host, and unowned runs.
CREATE INDEX run_open ON perdure.run (owner, id) WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0;
-- For which programs there are runs without an owner.
CREATE INDEX run_unowned ON perdure.run (program) WHERE owner IS NULL AND closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0;
-- Runs that hold slots of limits.
CREATE INDEX run_slot ON perdure.run (slot, id) WHERE slot IS NOT NULL AND closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0;

-- run_id, seq     place in the journal; no gaps
-- at_ms           when it was decided
-- body            the event as JSON, without its payload
-- prev            hash of the entry before it; of the run's id for the first
-- sealed          nonce and payload; NULL if there is none, or if it was erased
-- erased          SHA-256 of what was sealed, once that is erased, so that the chain still verifies
CREATE TABLE perdure.event (
    run_id text COLLATE "C" NOT NULL,
    seq    bigint NOT NULL,
    at_ms  bigint NOT NULL,
    body   text NOT NULL,
    prev   bytea NOT NULL,
    sealed bytea,
    erased bytea,
    PRIMARY KEY (run_id, seq)
);

-- run_id          whose account it is
-- account         'step:' and a step, or 'message:' and a GUID
-- balance         sum of all postings to it; each digit certifies something
CREATE TABLE perdure.ledger (
    run_id  text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    balance bigint NOT NULL CHECK (balance BETWEEN 0 AND 999999999999999),
    PRIMARY KEY (run_id, account)
) WITH (fillfactor = 80);

-- run_id, guid    to whom, and which: a message that is sent twice is one row
-- kind            what it says: a result, a signal, a timer, a cancel
-- step            the step that it concerns; NULL if it concerns the run
-- payload         codec bytes
-- due_at_ms       not delivered before; a timer is a message with a due time. 0: due at once, whatever the time is
-- arrival         sorts the messages of a run; never a cursor, because commit order is not arrival order
-- state           'pending', or not delivered any more: 'stale' or 'dead'. Acknowledged ones are deleted
-- reason          why it is not delivered any more
CREATE TABLE perdure.message (
    run_id    text COLLATE "C" NOT NULL,
    guid      text COLLATE "C" NOT NULL,
    kind      text NOT NULL,
    step      text,
    payload   bytea,
    due_at_ms bigint NOT NULL,
    arrival   bigint NOT NULL,
    state     text NOT NULL DEFAULT 'pending',
    reason    text,
    PRIMARY KEY (run_id, guid)
);

-- Messages that are due at once, in order, by the run or mailbox that they were first sent to, with which a GUID begins.
-- IS TRUE, so that the planner does not look through the index below for what is due at 0: that is all of it.
CREATE INDEX message_order ON perdure.message (left(guid, 34), arrival)
    WHERE state = 'pending' AND (due_at_ms = 0) IS TRUE;
-- Due messages, in the order in which they are delivered.
CREATE INDEX message_due ON perdure.message (due_at_ms, arrival) WHERE state = 'pending';
-- Messages that are not delivered any more, the oldest first. Operators' acts stay as long as their runs: they are the
-- record of what was decided on runs that are over.
CREATE INDEX message_aside ON perdure.message (arrival)
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
CREATE TABLE perdure.work (
    run_id          text COLLATE "C" NOT NULL,
    step            text COLLATE "C" NOT NULL,
    guid            text NOT NULL,
    queue           text COLLATE "C" NOT NULL,
    priority        integer NOT NULL,
    payload         bytea,
    available_at_ms bigint NOT NULL,
    token           text,
    host            text,
    claims          integer NOT NULL DEFAULT 0,
    held            integer NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    PRIMARY KEY (run_id, step)
);

-- The most urgent task of a queue.
CREATE INDEX work_queue ON perdure.work (queue, priority DESC, available_at_ms) WHERE held = 0;
-- Hosts that have claimed tasks.
CREATE INDEX work_host ON perdure.work (host) WHERE host IS NOT NULL;

-- run_id, step    a step whose logical attempt has failed: it waits for an operator, who retries or skips it
-- task            what the step calls
-- error           fingerprint of its last error
-- since_ms        when it failed
CREATE TABLE perdure.parked_step (
    run_id   text COLLATE "C" NOT NULL,
    step     text COLLATE "C" NOT NULL,
    task     text NOT NULL,
    error    text COLLATE "C" NOT NULL,
    since_ms bigint NOT NULL,
    PRIMARY KEY (run_id, step)
);

-- Runs with steps that failed for the same cause, in the order of lists.
CREATE INDEX parked_step_error ON perdure.parked_step (error, run_id);

-- run_id, name    whose value it is, and what the program calls it: the newest of each name is kept
-- payload         codec bytes
-- at_ms           when it was published, or later: shows whether a value that is sent again is older than the stored one
CREATE TABLE perdure.published (
    run_id  text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    at_ms   bigint NOT NULL,
    PRIMARY KEY (run_id, name)
) WITH (fillfactor = 80);

-- run_id, name    whose stream it is, and what the program calls it
-- length          how many chunks it has; an append locks this row first, so positions have no gaps
CREATE TABLE perdure.stream (
    run_id text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    length bigint NOT NULL,
    PRIMARY KEY (run_id, name)
) WITH (fillfactor = 80);

-- run_id, name    whose stream it belongs to
-- position        its place there: 0, 1, 2 and so on, in the order of commits
-- step            the step that appended it; 'root' if the workflow itself did
-- attempt, claim  which attempt of that step; of a queued one, under which claim of its work
-- number          counts the chunks of that step, attempt and claim in this stream
-- payload         codec bytes
-- at_ms           when it was appended
CREATE TABLE perdure.chunk (
    run_id   text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    step     text COLLATE "C" NOT NULL,
    attempt  integer NOT NULL,
    claim    integer NOT NULL,
    number   bigint NOT NULL,
    payload  bytea NOT NULL,
    at_ms    bigint NOT NULL,
    PRIMARY KEY (run_id, name, position)
);

-- A chunk that is written again after an unknown outcome is the same chunk. And which chunks an
-- attempt has.
CREATE UNIQUE INDEX chunk_number ON perdure.chunk (run_id, name, step, attempt, claim, number) INCLUDE (position);

-- run_id, step    a node of a graph that some of its predecessors have reached, and that is not ready yet: the row is
--                 there from the first of them to its readiness
-- required        how many predecessors it waits for
-- completed       how many of them are resolved: they ran, or never will
CREATE TABLE perdure.readiness (
    run_id    text COLLATE "C" NOT NULL,
    step      text COLLATE "C" NOT NULL,
    required  bigint NOT NULL,
    completed bigint NOT NULL,
    CHECK (completed BETWEEN 0 AND required),
    PRIMARY KEY (run_id, step)
) WITH (fillfactor = 80);

-- run_id, step    the node that the value waits for
-- position        which item of a spread it comes from; -1 if it comes from none
-- source          the step that sent it
-- variable        what the node will call it
-- value           codec bytes
CREATE TABLE perdure.inbox (
    run_id   text COLLATE "C" NOT NULL,
    step     text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    source   text COLLATE "C" NOT NULL,
    variable text COLLATE "C" NOT NULL,
    value    bytea NOT NULL,
    PRIMARY KEY (run_id, step, position, source, variable)
);

-- run_id, step    the step that waits, or the run that is found
-- kind            'wait': the step waits for one signal to the topic and the key. 'key': the run is found by a search key
-- mailbox         the id that topic and key have together, of the form of a run's: signals for a waiting step are
--                 messages to it. 'scrubbed ' before it: signals to the search key do not find the run, statistics do
-- topic, key      of a search key: its name, and its value
-- since_ms        since when it waits: the oldest hook is served first
CREATE TABLE perdure.hook (
    run_id   text COLLATE "C" NOT NULL,
    step     text COLLATE "C" NOT NULL,
    kind     text COLLATE "C" NOT NULL CHECK (kind IN ('wait', 'key')),
    mailbox  text COLLATE "C" NOT NULL,
    topic    text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    since_ms bigint NOT NULL,
    PRIMARY KEY (run_id, step, kind, mailbox)
);

-- Steps that wait for a signal, the oldest first; and runs that a search key finds.
CREATE INDEX hook_mailbox ON perdure.hook (mailbox, kind, since_ms);
-- Runs that have a tag or search key, and how its values are spread.
CREATE INDEX hook_key ON perdure.hook (topic, key, run_id) WHERE kind = 'key';

-- name, version   a graph that was deployed: what runs of that version execute
-- digest          of its content: a version means one thing for ever
-- content         the graph as JSON
-- deployed_at_ms  when it was deployed
-- is_active       1 if new runs are of this version, else 0
-- activations     how often it was made the active one: 0 if it never was
CREATE TABLE perdure.program (
    name           text COLLATE "C" NOT NULL,
    version        text COLLATE "C" NOT NULL,
    digest         text NOT NULL,
    content        text NOT NULL,
    deployed_at_ms bigint NOT NULL,
    is_active      integer NOT NULL DEFAULT 0,
    activations    integer NOT NULL DEFAULT 0,
    PRIMARY KEY (name, version)
);

-- One active version of each.
CREATE UNIQUE INDEX program_active ON perdure.program (name) WHERE is_active = 1;
-- Every host snapshot sums these: the sum shows whether something changed.
CREATE INDEX program_activations ON perdure.program (activations);

-- id              says on which machine, since which boot, by which process it was made
-- beat            grows while the host lives; only its change has a meaning
-- stale_after_ms  how long its beat may stay unchanged before other hosts consider it dead
-- queues          whose tasks it does, as a JSON list
-- started_at_ms   when it registered
CREATE TABLE perdure.host (
    id             text COLLATE "C" NOT NULL PRIMARY KEY,
    beat           bigint NOT NULL,
    stale_after_ms bigint NOT NULL,
    queues         text NOT NULL,
    started_at_ms  bigint NOT NULL
) WITH (fillfactor = 50);

-- id              names the operation: begins with the time of its creation, so later ones sort later
-- state           'running', 'cleanup', 'failed' or 'completed', as in the data
-- data            the ledger as JSON: participants' calls, heartbeats, resources
-- backed_up       1 once it is over and kept for reference only, else 0
CREATE TABLE perdure.operation (
    id        text COLLATE "C" NOT NULL PRIMARY KEY,
    state     text NOT NULL,
    data      text NOT NULL,
    backed_up integer NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Operations under way, and the oldest backups.
CREATE INDEX operation_backup ON perdure.operation (backed_up, id);

-- operation_id, number place in the log of an operation; the operation's row is locked by the append
-- level           'debug', 'info', 'warning' or 'error'
-- line            as people read it
CREATE TABLE perdure.operation_log (
    operation_id text COLLATE "C" NOT NULL,
    number       bigint NOT NULL,
    level        text NOT NULL,
    line         text NOT NULL,
    PRIMARY KEY (operation_id, number)
);

-- token           random: names a transaction
-- committed       1 in the row that the transaction wrote; 0 in one that was written in its place by the host that asked
--                 for its outcome, so that it can't commit any more
-- at_ms           when it was written, by the server's clock
CREATE TABLE perdure.outcome (
    token     text COLLATE "C" NOT NULL PRIMARY KEY,
    committed integer NOT NULL,
    at_ms     bigint NOT NULL
);

-- Views for the user's SQL. Columns of a version are added, never changed or removed.

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

-- What open runs wait for: signals, timers and retries (until a time), and tasks on queues. A signal without a key
-- is sent to its run.
CREATE VIEW perdure.perdure_v1_waits AS
SELECT run_id, step, 'signal' AS kind, topic AS name, nullif(key, '') AS key, since_ms, NULL::bigint AS until_ms, NULL::text AS host
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
-- scope, name     which schedule
-- program         whose runs it starts
-- payload         their arguments, as codec bytes
-- state           timetable, rules, and starts that are decided and not carried out, as JSON
-- look_at_ms      when a host must look at it; NULL if never
-- revision        counts the writes; a write that was decided on an older one changes nothing
CREATE TABLE perdure.schedule (
    scope      text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    program    text NOT NULL,
    payload    bytea NOT NULL,
    state      text NOT NULL,
    look_at_ms bigint,
    revision   bigint NOT NULL,
    PRIMARY KEY (scope, name)
);

-- Schedules in the order in which hosts must look at them.
CREATE INDEX schedule_due ON perdure.schedule (look_at_ms) WHERE look_at_ms IS NOT NULL;

-- scope, name     of which schedule; its row is written by the same commit
-- number          counts its ticks; old ones are deleted
-- body            what became of the tick, as JSON
CREATE TABLE perdure.tick (
    scope      text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    number     bigint NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (scope, name, number)
);

-- name            of an event bus that some engine was opened with
-- programs        JSON list of the programs whose runs it gets; NULL if of all
-- since_ms        when it was registered: runs that were started before are published from where they were then on
-- down_since_ms   since when it takes no events, as a host saw last; NULL if it takes them
-- error           why
CREATE TABLE perdure.bus (
    name          text COLLATE "C" NOT NULL PRIMARY KEY,
    programs      text,
    since_ms      bigint NOT NULL,
    down_since_ms bigint,
    error         text
);

-- bus, run_id     which run is published to which bus
-- replay          '' for the run as it advances; otherwise names a request to publish a part of it again
-- seq             the next entry to publish: all before it are published, or dead letters
-- end_seq         where a replay ends; NULL if with the run. The row is deleted when all is published
-- holder          the relay that publishes it; NULL if none does
-- lease_until_ms  until when no other relay may take it
CREATE TABLE perdure.publication (
    bus            text COLLATE "C" NOT NULL,
    run_id         text COLLATE "C" NOT NULL,
    replay         text COLLATE "C" NOT NULL,
    seq            bigint NOT NULL,
    end_seq        bigint,
    holder         text,
    lease_until_ms bigint NOT NULL,
    PRIMARY KEY (bus, run_id, replay)
) WITH (fillfactor = 80);

-- bus, run_id     which bus refused an event of which run
-- seq             the entry of the event
-- type            of the event
-- reason          what the bus said last
-- tries           how often it was tried
-- at_ms           when it was given up
CREATE TABLE perdure.dead_letter (
    bus    text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    seq    bigint NOT NULL,
    type   text NOT NULL,
    reason text NOT NULL,
    tries  bigint NOT NULL,
    at_ms  bigint NOT NULL,
    PRIMARY KEY (bus, run_id, seq)
);

-- Attempts of tasks and child runs. An attempt without an outcome is 'running' if no later one has started and its run is
-- open; otherwise its outcome is 'unknown'. `logical_attempt` grows when an operator retries the step.
CREATE VIEW perdure.perdure_v1_attempts AS
SELECT event.run_id, event.step, event.attempt, min(event.logical_attempt) AS logical_attempt,
       CASE WHEN count(*) FILTER (WHERE event.type = 'InvokeRetrying' OR event.is_failure) > 0 THEN 'failed'
            WHEN count(*) FILTER (WHERE event.type = 'InvokeCompleted') > 0 THEN 'completed'
            WHEN max(event.last_attempt) = event.attempt AND max(run.closed_at_ms) IS NULL THEN 'running'
            ELSE 'unknown' END AS status,
       min(event.at_ms) FILTER (WHERE event.type = 'InvokeStarted') AS started_at_ms,
       max(event.at_ms) FILTER (WHERE event.type <> 'InvokeStarted') AS ended_at_ms,
       max(event.retry_at_ms) FILTER (WHERE event.retry_at_ms >= 0) AS retry_at_ms
FROM (
    SELECT run_id, step, type, attempt, at_ms, coalesce(body::json ->> 'ok', 'true') = 'false' AS is_failure,
           (body::json ->> 'retry_at_ms')::bigint AS retry_at_ms, max(attempt) OVER (PARTITION BY run_id, step) AS last_attempt,
           1 + count(*) FILTER (WHERE type = 'SignalAccepted') OVER (PARTITION BY run_id, step ORDER BY seq)
               AS logical_attempt
    FROM perdure.perdure_v1_history
    WHERE type IN ('InvokeStarted', 'InvokeRetrying', 'InvokeCompleted')
       OR type = 'SignalAccepted' AND body::json ->> 'signal_type' = 'RETRY_STEP'
) AS event
JOIN perdure.run AS run ON run.id = event.run_id
WHERE event.type <> 'SignalAccepted'
GROUP BY event.run_id, event.step, event.attempt;

-- Schedules. `next_at_ms` is the next instant of the timetable, which is JSON; a paused schedule starts no runs.
CREATE VIEW perdure.perdure_v1_schedules AS
SELECT scope, name, program, state::json ->> 'timetable' AS timetable,
       coalesce(state::json ->> 'overlap', 'skip') AS overlap, state::json ->> 'pause' IS NOT NULL AS is_paused,
       coalesce(state::json ->> 'pause', '') AS note, (state::json ->> 'next_ms')::bigint AS next_at_ms,
       (state::json -> 'waiting' ->> 'instant_ms')::bigint AS waiting_ms, state::json ->> 'last_run' AS last_run
FROM perdure.schedule;

-- What became of the newest ticks of each schedule: `count` of them in a row, up to `until_ms`, if they shared a fate.
CREATE VIEW perdure.perdure_v1_ticks AS
SELECT scope, name, number, (body::json ->> 'instant_ms')::bigint AS at_ms, body::json ->> 'outcome' AS outcome, body::json ->> 'run_id' AS run_id,
       body::json ->> 'reason' AS reason, (body::json ->> 'count')::bigint AS count, (body::json ->> 'until_ms')::bigint AS until_ms
FROM perdure.tick;

-- run_id          which run waits; it has no entries, and its row has epoch 0
-- slot            the limit, scope and key for which it waits, as in its own row; '' if for none
-- scope, program  those of the run
-- priority        higher goes first, within a scope
-- state           'ready' for a slot, 'delayed' until a time, or 'waiting' for approval
-- ready_at_ms     not admitted before
-- until_ms        the latest time to which later starts with its key may put it off; NULL if they may not
CREATE TABLE perdure.pending (
    run_id      text COLLATE "C" NOT NULL PRIMARY KEY,
    slot        text COLLATE "C" NOT NULL,
    scope       text COLLATE "C" NOT NULL,
    program     text NOT NULL,
    priority    bigint NOT NULL,
    state       text NOT NULL,
    ready_at_ms bigint NOT NULL,
    until_ms    bigint
);

-- Runs that are ready, in the order in which each scope has its turn.
CREATE INDEX pending_line ON perdure.pending (slot, scope, priority DESC, run_id) WHERE state = 'ready';
-- How many runs wait for a slot.
CREATE INDEX pending_slot ON perdure.pending (slot, run_id);
-- Delayed runs in the order in which they become ready.
CREATE INDEX pending_delayed ON perdure.pending (ready_at_ms, run_id) WHERE state = 'delayed';

-- slot            name of the limit, scope (NULL if it counts all scopes together) and key, as JSON
-- name            name of the limit
-- rules           what the code says about the limit, as JSON: those of the newest start
-- served          the scope whose run was admitted last
-- arrival_us      when the rate allows the next admission, at an even pace
CREATE TABLE perdure.limit_key (
    slot       text COLLATE "C" NOT NULL PRIMARY KEY,
    name       text NOT NULL,
    rules      text NOT NULL,
    served     text NOT NULL,
    arrival_us bigint NOT NULL
) WITH (fillfactor = 70);

-- kind, name      what is set: a limit, a queue or a program
-- body            the operator's values, as JSON: they replace those of the code
-- at_ms           when it was set
CREATE TABLE perdure.limit_setting (
    kind  text COLLATE "C" NOT NULL,
    name  text COLLATE "C" NOT NULL,
    body  text NOT NULL,
    at_ms bigint NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Limits. `scope` is NULL if the limit counts all scopes together; `rules` are the code's, `setting` the operator's, as
-- JSON.
CREATE VIEW perdure.perdure_v1_limits AS
SELECT known.name, known.slot::json ->> 1 AS scope, known.slot::json ->> 2 AS key,
       (SELECT count(*) FROM perdure.run AS run
        WHERE run.slot = known.slot AND run.slot IS NOT NULL AND run.closed_at_ms IS NULL AND run.epoch IS DISTINCT FROM 0) AS running,
       (SELECT count(*) FROM perdure.pending AS pending WHERE pending.slot = known.slot) AS waiting,
       known.rules, coalesce(setting.body, '') AS setting
FROM perdure.limit_key AS known
LEFT JOIN perdure.limit_setting AS setting ON setting.kind = 'limit' AND setting.name = known.name;

-- run_id          a run that was erased, archived or purged
-- scope, program, status, created_at_ms, closed_at_ms  as its row had them
-- entries, head   length and last hash of its journal: an archive is verified against them
-- parent, forked_from, chain  as its row had them
-- archive         the object that holds it; NULL if it is not archived
-- receipt         what was erased, as JSON with hashes; NULL if nothing was
-- purged_at_ms    when it was purged; NULL if it was not
-- is_unfinished   1 while objects of it, in the archive or among artifacts, are still to be deleted
CREATE TABLE perdure.retained (
    run_id        text COLLATE "C" PRIMARY KEY,
    scope         text NOT NULL,
    program       text NOT NULL,
    status        text NOT NULL,
    created_at_ms bigint NOT NULL,
    closed_at_ms  bigint NOT NULL,
    entries       bigint NOT NULL,
    head          bytea NOT NULL,
    parent        text COLLATE "C",
    forked_from   text COLLATE "C",
    chain         text COLLATE "C",
    archive       text,
    receipt       text,
    purged_at_ms  bigint,
    is_unfinished bigint NOT NULL DEFAULT 0 CHECK (is_unfinished IN (0, 1))
);

-- Archived runs in the order in which they ended.
CREATE INDEX retained_archived ON perdure.retained (status, closed_at_ms, run_id) WHERE archive IS NOT NULL;
-- Archived child runs.
CREATE INDEX retained_parent ON perdure.retained (parent) WHERE archive IS NOT NULL AND parent IS NOT NULL;
-- Archived forks.
CREATE INDEX retained_forks ON perdure.retained (forked_from) WHERE archive IS NOT NULL AND forked_from IS NOT NULL;
-- Archived runs of a chain.
CREATE INDEX retained_chain ON perdure.retained (chain) WHERE archive IS NOT NULL AND chain IS NOT NULL;
-- Runs with objects that are still to be deleted.
CREATE INDEX retained_unfinished ON perdure.retained (run_id) WHERE is_unfinished = 1;
-- id              the public part of a token
-- hash            SHA-256 of its secret part, which the store never has
-- label           what it is for
-- role            what its bearer may do: viewer, operator, engineer, admin
-- scope           whose runs: this scope and those below it; NULL for all
-- created_at_ms   when it was made
-- expires_at_ms   from when on it is refused; NULL for never
-- revoked_at_ms   when it was revoked; NULL if it was not
CREATE TABLE perdure.token (
    id            text COLLATE "C" PRIMARY KEY,
    hash          bytea NOT NULL,
    label         text NOT NULL,
    role          text NOT NULL,
    scope         text,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    revoked_at_ms bigint
);

-- id              16 hex digits of the time, then random ones: later records sort later
-- at_ms           when it was asked for
-- actor, role     who asked: the label of a token and its role, or the user of a command
-- action          an act, or a change of schedules or tokens, such as 'PAUSE' or 'token.create'
-- target          what it was about: a run, a schedule, a token
-- scope           that of the target
-- reason          as the actor gave it
-- outcome         'accepted', or the code of the refusal
CREATE TABLE perdure.audit (
    id      text COLLATE "C" PRIMARY KEY,
    at_ms   bigint NOT NULL,
    actor   text NOT NULL,
    role    text NOT NULL,
    action  text NOT NULL,
    target  text NOT NULL,
    scope   text NOT NULL,
    reason  text NOT NULL,
    outcome text NOT NULL
);
