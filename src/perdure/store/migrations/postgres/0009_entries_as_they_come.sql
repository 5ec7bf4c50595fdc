-- Nothing to do: a Postgres table keeps rows in the order of insertion. The driver requires a statement.
SELECT 1;
