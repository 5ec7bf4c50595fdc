-- Statements of the Postgres store for event buses.

-- name: register_bus
-- Commits: the bus, with the programs whose runs it gets from now on.
INSERT INTO perdure.bus AS bus (name, programs, since_ms) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET programs = excluded.programs WHERE bus.programs IS DISTINCT FROM excluded.programs

-- name: select_buses
SELECT name, programs, since_ms, down_since_ms, error FROM perdure.bus ORDER BY name

-- name: note_bus
-- Commits: whether the bus takes events. Unchanged rows are not written.
UPDATE perdure.bus SET down_since_ms = $2, error = $3
WHERE name = $1 AND (down_since_ms IS NULL) <> ($2::bigint IS NULL)

-- name: remove_bus
DELETE FROM perdure.bus WHERE name = $1

-- name: remove_publications
DELETE FROM perdure.publication WHERE bus = $1

-- name: remove_dead_letters
DELETE FROM perdure.dead_letter WHERE bus = $1

-- name: enrol_open
-- Commits: publications of open runs that have none, of the ids given. A run that was started after the bus was
-- registered, by a process that did not know the bus yet, is published from its first entry; others from where they are.
INSERT INTO perdure.publication (bus, run_id, replay, seq, lease_until_ms)
SELECT bus.name, run.id, '', CASE WHEN run.created_at_ms >= bus.since_ms THEN 0 ELSE run.seq END, 0
FROM perdure.bus AS bus, perdure.run AS run
WHERE bus.name = $1 AND run.id = ANY($2::text[]) AND run.closed_at_ms IS NULL
ON CONFLICT DO NOTHING

-- name: select_ahead
-- The publications after a key, in the order of keys: whether each has more to publish, and may be taken by this relay.
-- One of a run that is not in the store may be taken: it is deleted.
SELECT p.run_id, p.replay, (p.replay <> '' OR run.id IS NULL OR run.seq > p.seq)
       AND (p.holder IS NOT DISTINCT FROM $2 OR p.lease_until_ms <= $3)
FROM (SELECT * FROM perdure.publication WHERE bus = $1 AND (run_id, replay) > ($4, $5)
      ORDER BY run_id, replay LIMIT $6) AS p
LEFT JOIN perdure.run AS run ON run.id = p.run_id
ORDER BY p.run_id, p.replay

-- name: claim_publications
-- Commits: this relay holds these publications until the lease ends. Those that another relay holds are skipped.
-- Locks: the publications, in the order of keys; those that another relay locks are skipped.
UPDATE perdure.publication AS p SET holder = $2, lease_until_ms = $3
FROM (
    SELECT locked.run_id, locked.replay
    FROM unnest($5::text[], $6::text[]) AS b (run_id, replay)
    JOIN perdure.publication AS locked ON locked.bus = $1 AND locked.run_id = b.run_id AND locked.replay = b.replay
    WHERE locked.holder IS NOT DISTINCT FROM $2 OR locked.lease_until_ms <= $4
    ORDER BY locked.run_id, locked.replay FOR UPDATE OF locked SKIP LOCKED
) AS b
WHERE p.bus = $1 AND p.run_id = b.run_id AND p.replay = b.replay
RETURNING p.run_id, p.replay, p.seq, p.end_seq

-- name: advance_publications
-- Commits: everything before `seq` is published, and the lease. Nothing where another relay holds it.
-- Locks: the publications, in the order of keys.
UPDATE perdure.publication AS p SET seq = greatest(p.seq, b.seq), lease_until_ms = $3
FROM (
    SELECT locked.run_id, locked.replay, b.seq
    FROM unnest($4::text[], $5::text[], $6::bigint[]) AS b (run_id, replay, seq)
    JOIN perdure.publication AS locked ON locked.bus = $1 AND locked.run_id = b.run_id AND locked.replay = b.replay
    WHERE locked.holder = $2
    ORDER BY locked.run_id, locked.replay FOR UPDATE OF locked
) AS b
WHERE p.bus = $1 AND p.run_id = b.run_id AND p.replay = b.replay

-- name: end_publications
-- Commits: all of these is published.
-- Locks: the publications, in the order of keys.
DELETE FROM perdure.publication AS p USING (
    SELECT locked.run_id, locked.replay FROM unnest($2::text[], $3::text[]) AS b (run_id, replay)
    JOIN perdure.publication AS locked ON locked.bus = $1 AND locked.run_id = b.run_id AND locked.replay = b.replay
    ORDER BY locked.run_id, locked.replay FOR UPDATE OF locked
) AS b
WHERE p.bus = $1 AND p.run_id = b.run_id AND p.replay = b.replay

-- name: add_replays
-- Commits: parts of runs' journals are to be published once more.
INSERT INTO perdure.publication (bus, run_id, replay, seq, end_seq, lease_until_ms)
SELECT $1, b.run_id, $2, b.seq, b.end_seq, 0 FROM unnest($3::text[], $4::bigint[], $5::bigint[]) AS b (run_id, seq, end_seq)
ON CONFLICT DO NOTHING

-- name: select_replayable
-- Runs after an id, with the part of their journals that was written in a span of time, as far as it has any.
SELECT run.id,
       (SELECT min(seq) FROM perdure.event WHERE run_id = run.id AND at_ms >= $2 AND at_ms < $3),
       (SELECT max(seq) + 1 FROM perdure.event WHERE run_id = run.id AND at_ms >= $2 AND at_ms < $3)
FROM perdure.run AS run
WHERE run.id > $1 AND run.created_at_ms < $3 AND (run.closed_at_ms IS NULL OR run.closed_at_ms >= $2)
  AND ($4::text[] IS NULL OR run.program = ANY($4))
ORDER BY run.id LIMIT $5

-- name: count_behind
-- How many publications have more to publish, and since when the oldest of these entries waits; of the first ones by key.
SELECT count(*), min((SELECT e.at_ms FROM perdure.event AS e WHERE e.run_id = ahead.run_id AND e.seq = ahead.seq))
FROM (SELECT p.run_id, p.seq FROM perdure.publication AS p JOIN perdure.run AS run ON run.id = p.run_id
      WHERE p.bus = $1 AND p.replay = '' AND run.seq > p.seq LIMIT $2) AS ahead

-- name: count_replays
SELECT count(*) FROM (SELECT 1 FROM perdure.publication WHERE bus = $1 AND replay <> '' LIMIT $2) AS replays

-- name: count_dead_letters
SELECT count(*) FROM (SELECT 1 FROM perdure.dead_letter WHERE bus = $1 LIMIT $2) AS letters

-- name: add_dead_letters
-- Commits: events that the bus refused, each once.
INSERT INTO perdure.dead_letter AS old (bus, run_id, seq, type, reason, tries, at_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
ON CONFLICT (bus, run_id, seq)
DO UPDATE SET reason = excluded.reason, tries = old.tries + excluded.tries, at_ms = excluded.at_ms

-- name: select_dead_letters
SELECT bus, run_id, seq, type, reason, tries, at_ms FROM perdure.dead_letter
WHERE ($1::text IS NULL OR bus = $1) AND ($2::text IS NULL OR run_id = $2)
  AND (bus, run_id, seq) > ($3, $4, $5::bigint)
ORDER BY bus, run_id, seq LIMIT $6

-- name: drop_dead_letter
DELETE FROM perdure.dead_letter WHERE bus = $1 AND run_id = $2 AND seq = $3 RETURNING seq

-- name: select_tags
-- The tags and search keys of runs.
SELECT run_id, topic, key FROM perdure.hook WHERE run_id = ANY($1::text[]) AND kind = 'key'
