"""A run's append-only journal: events, the hash chain, the fold, its guards and invariants."""
