"""`perdure worker`: processes that run an engine each, and the supervisor that keeps them running."""
