"""Virtual clock, crash explorer and checkers, for perdure's tests and its users' tests."""
