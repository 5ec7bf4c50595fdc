-- A start key is handed over when a run that failed or was cancelled is replaced by a new one under the same key.

ALTER TABLE perdure_run ADD COLUMN replaced_by TEXT;

DROP INDEX perdure_run_key;
CREATE UNIQUE INDEX perdure_run_key ON perdure_run (scope, program, key)
    WHERE key IS NOT NULL AND replaced_by IS NULL;
