"""Bundles, the groups they merge into, and the committer that writes groups."""
