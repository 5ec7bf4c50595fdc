"""Stored runs and their programs: rebuilds a run on the registered code, checks all open runs before a deployment."""
