"""Operations: liveness of participants, crashes of calls, and clean-up, as pure functions."""
