"""Durable execution for Python: programs that survive the death of their process."""
