"""`perdure bus` and `perdure dlq`: event buses and what they refused."""
