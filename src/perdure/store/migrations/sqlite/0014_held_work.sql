-- The queued work of a paused run is held: it stays on its queue, with its claims, and no host claims it.
ALTER TABLE perdure_work ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
DROP INDEX perdure_work_queue;
CREATE INDEX perdure_work_queue ON perdure_work (queue, priority DESC, available_at_ms) WHERE held = 0;
