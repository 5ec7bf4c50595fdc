-- Nothing to do: a table of Postgres keeps rows in the order in which they come. The driver wants a statement.
SELECT 1;
