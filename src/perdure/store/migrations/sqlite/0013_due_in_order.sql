-- Due messages are read in the order of their index, so that a read costs by what it returns and not by what is due.
DROP INDEX perdure_message_due;
CREATE INDEX perdure_message_due ON perdure_message (due_at_ms, arrival) WHERE state = 'pending';
