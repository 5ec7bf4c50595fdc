-- Runs that continue others, and how the last one of a chain is found.

ALTER TABLE perdure.run ADD COLUMN chain text COLLATE "C";

CREATE INDEX run_chain ON perdure.run (chain, id) WHERE chain IS NOT NULL;
