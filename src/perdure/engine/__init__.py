"""Advances runs: loads a run, lets the core decide, commits the decision as one bundle.

Rooms, upper ones import lower ones only: `programs` (which code a stored run resumes with), `workflow` and `graph` (the
two kinds of machine), `runs` (what both kinds share), `known_programs` and `sources`.
"""
