"""Artifacts: large results beside the store, in a directory or an object store."""
