"""`perdure worker`: worker processes, each with an engine, and their supervisor."""
