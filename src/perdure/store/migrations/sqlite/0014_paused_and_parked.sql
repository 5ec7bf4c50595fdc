-- The queued work of a paused run is held: it stays on its queue, with its claims, and no host claims it.
ALTER TABLE perdure_work ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
DROP INDEX perdure_work_queue;
CREATE INDEX perdure_work_queue ON perdure_work (queue, priority DESC, available_at_ms) WHERE held = 0;

-- Steps that have failed and wait for an operator, so that lists find them without reading journals.
CREATE TABLE perdure_parked_step (
    run_id   TEXT NOT NULL,
    step     TEXT NOT NULL,
    task     TEXT NOT NULL,
    error    TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX perdure_parked_step_error ON perdure_parked_step (error, since_ms);
