"""Workflow runs: the machine that drives a workflow's coroutines; its operations, cancellation and end."""
