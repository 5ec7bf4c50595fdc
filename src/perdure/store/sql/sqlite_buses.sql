-- Statements of the SQLite store for event buses.

-- name: register_bus
-- Commits: the bus, with the programs whose runs it gets from now on.
INSERT INTO perdure_bus (name, programs, since_ms) VALUES (:name, :programs, :now_ms)
ON CONFLICT (name) DO UPDATE SET programs = excluded.programs WHERE programs IS NOT excluded.programs

-- name: select_buses
SELECT name, programs, since_ms, down_since_ms, error FROM perdure_bus ORDER BY name

-- name: note_bus
-- Commits: whether the bus takes events. Unchanged rows are not written.
UPDATE perdure_bus SET down_since_ms = :down_since_ms, error = :error
WHERE name = :name AND (down_since_ms IS NULL) <> (:down_since_ms IS NULL)

-- name: remove_bus
DELETE FROM perdure_bus WHERE name = :name

-- name: remove_publications
DELETE FROM perdure_publication WHERE bus = :name

-- name: remove_dead_letters
DELETE FROM perdure_dead_letter WHERE bus = :name

-- name: enrol_open
-- Commits: publications of open runs that have none, of the ids given. A run that was started after the bus was
-- registered, by a process that did not know the bus yet, is published from its first entry; others from where they are.
INSERT INTO perdure_publication (bus, run_id, replay, seq, lease_until_ms)
SELECT bus.name, run.id, '', CASE WHEN run.created_at_ms >= bus.since_ms THEN 0 ELSE run.seq END, 0
FROM perdure_bus AS bus, perdure_run AS run
WHERE bus.name = :bus AND run.id IN (SELECT value FROM json_each(:ids)) AND run.closed_at_ms IS NULL
ON CONFLICT DO NOTHING

-- name: select_ahead
-- The publications after a key, in the order of keys: whether each has more to publish, and may be taken by this relay.
-- One of a run that is not in the store may be taken: it is deleted.
SELECT p.run_id, p.replay, (p.replay <> '' OR run.id IS NULL OR run.seq > p.seq)
       AND (p.holder IS :holder OR p.lease_until_ms <= :now_ms)
FROM perdure_publication AS p LEFT JOIN perdure_run AS run ON run.id = p.run_id
WHERE p.bus = :bus AND (p.run_id, p.replay) > (:run_id, :replay)
ORDER BY p.run_id, p.replay LIMIT :limit

-- name: claim_publications
-- Commits: this relay holds these publications until the lease ends. Those that another relay holds are skipped.
UPDATE perdure_publication SET holder = :holder, lease_until_ms = :lease_until_ms
WHERE bus = :bus AND (run_id, replay) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:keys))
  AND (holder IS :holder OR lease_until_ms <= :now_ms)
RETURNING run_id, replay, seq, end_seq

-- name: advance_publication
-- Commits: everything before `seq` is published, and the lease. Nothing if another relay holds it.
UPDATE perdure_publication SET seq = max(seq, :seq), lease_until_ms = :lease_until_ms
WHERE bus = :bus AND run_id = :run_id AND replay = :replay AND holder = :holder

-- name: end_publication
-- Commits: all of it is published.
DELETE FROM perdure_publication WHERE bus = :bus AND run_id = :run_id AND replay = :replay

-- name: add_replay
-- Commits: a part of a run's journal is to be published once more.
INSERT INTO perdure_publication (bus, run_id, replay, seq, end_seq, lease_until_ms)
VALUES (:bus, :run_id, :replay, :seq, :end_seq, 0) ON CONFLICT DO NOTHING

-- name: select_replayable
-- Runs after an id, with the part of their journals that was written in a span of time, as far as it has any.
SELECT run.id,
       (SELECT min(seq) FROM perdure_event WHERE run_id = run.id AND at_ms >= :since_ms AND at_ms < :until_ms),
       (SELECT max(seq) + 1 FROM perdure_event WHERE run_id = run.id AND at_ms >= :since_ms AND at_ms < :until_ms)
FROM perdure_run AS run
WHERE run.id > :after AND run.created_at_ms < :until_ms
  AND (run.closed_at_ms IS NULL OR run.closed_at_ms >= :since_ms)
  AND (:programs IS NULL OR run.program IN (SELECT value FROM json_each(:programs)))
ORDER BY run.id LIMIT :limit

-- name: count_behind
-- How many publications have more to publish, and since when the oldest of these entries waits; of the first ones by key.
SELECT count(*), min((SELECT e.at_ms FROM perdure_event AS e WHERE e.run_id = ahead.run_id AND e.seq = ahead.seq))
FROM (SELECT p.run_id, p.seq FROM perdure_publication AS p JOIN perdure_run AS run ON run.id = p.run_id
      WHERE p.bus = :bus AND p.replay = '' AND run.seq > p.seq LIMIT :most) AS ahead

-- name: count_replays
SELECT count(*) FROM (SELECT 1 FROM perdure_publication WHERE bus = :bus AND replay <> '' LIMIT :most)

-- name: count_dead_letters
SELECT count(*) FROM (SELECT 1 FROM perdure_dead_letter WHERE bus = :bus LIMIT :most)

-- name: add_dead_letter
-- Commits: an event that the bus refused, once.
INSERT INTO perdure_dead_letter (bus, run_id, seq, type, reason, tries, at_ms)
VALUES (:bus, :run_id, :seq, :type, :reason, :tries, :at_ms)
ON CONFLICT (bus, run_id, seq)
DO UPDATE SET reason = excluded.reason, tries = perdure_dead_letter.tries + excluded.tries, at_ms = excluded.at_ms

-- name: select_dead_letters
SELECT bus, run_id, seq, type, reason, tries, at_ms FROM perdure_dead_letter
WHERE (:bus IS NULL OR bus = :bus) AND (:run_id IS NULL OR run_id = :run_id)
  AND (bus, run_id, seq) > (:after_bus, :after_run, :after_seq)
ORDER BY bus, run_id, seq LIMIT :limit

-- name: drop_dead_letter
DELETE FROM perdure_dead_letter WHERE bus = :bus AND run_id = :run_id AND seq = :seq

-- name: select_tags
-- The tags and search keys of runs.
SELECT run_id, topic, key FROM perdure_hook
WHERE run_id IN (SELECT value FROM json_each(:ids)) AND kind = 'key'
