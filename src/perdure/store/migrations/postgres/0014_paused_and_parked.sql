-- The queued work of a paused run is held: it stays on its queue, with its claims, and no host claims it.
ALTER TABLE perdure.work ADD COLUMN held integer NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
DROP INDEX perdure.work_queue;
CREATE INDEX work_queue ON perdure.work (queue, priority DESC, available_at_ms) WHERE held = 0;

-- Steps that have failed and wait for an operator, so that lists find them without reading journals.
CREATE TABLE perdure.parked_step (
    run_id   text COLLATE "C" NOT NULL,
    step     text COLLATE "C" NOT NULL,
    task     text NOT NULL,
    error    text COLLATE "C" NOT NULL,
    since_ms bigint NOT NULL,
    PRIMARY KEY (run_id, step)
);
CREATE INDEX parked_step_error ON perdure.parked_step (error, since_ms);
