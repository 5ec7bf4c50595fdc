"""Participants, calls and their frames: who is alive, what a crash means, and who cleans up."""
