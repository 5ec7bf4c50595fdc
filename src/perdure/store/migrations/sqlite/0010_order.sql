-- Messages that are due at once have the due time 0, whatever the clock of their sender, and are in order.
UPDATE perdure_message SET due_at_ms = 0 WHERE state = 'pending' AND kind NOT IN ('timer', 'retry');
CREATE INDEX perdure_message_order ON perdure_message (substr(guid, 1, 34), arrival) WHERE state = 'pending' AND due_at_ms = 0;
