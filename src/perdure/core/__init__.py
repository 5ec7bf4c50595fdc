"""Pure decisions over data: no SQL, no clock, no event loop, no randomness."""
