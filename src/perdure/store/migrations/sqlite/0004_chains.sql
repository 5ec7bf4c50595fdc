-- Runs that continue others, and how the last one of a chain is found.

ALTER TABLE perdure_run ADD COLUMN chain TEXT;

CREATE INDEX perdure_run_chain ON perdure_run (chain, id) WHERE chain IS NOT NULL;
