"""Load, decide with the core, commit one bundle."""
