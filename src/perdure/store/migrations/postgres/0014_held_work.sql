-- The queued work of a paused run is held: it stays on its queue, with its claims, and no host claims it.
ALTER TABLE perdure.work ADD COLUMN held integer NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
DROP INDEX perdure.work_queue;
CREATE INDEX work_queue ON perdure.work (queue, priority DESC, available_at_ms) WHERE held = 0;
