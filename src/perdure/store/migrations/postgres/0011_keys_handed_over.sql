-- A start key is handed over when a run that failed or was cancelled is replaced by a new one under the same key.

ALTER TABLE perdure.run ADD COLUMN replaced_by text COLLATE "C";

DROP INDEX perdure.run_key;
CREATE UNIQUE INDEX run_key ON perdure.run (scope, program, key)
    WHERE key IS NOT NULL AND replaced_by IS NULL;
