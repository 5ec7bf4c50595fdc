"""The exit codes of all commands."""

FAILED = 1
"""The command ran, and what it reports is bad: findings, divergences, a failed run."""

REFUSED = 2
"""The command could not do what was asked, and changed nothing."""

INTERRUPTED = 130
"""Ctrl-C: the shell convention 128 + SIGINT."""

PIPE_CLOSED = 141
"""The reader of the output has gone, as `head` does: 128 + SIGPIPE."""

TERMINATED = 143
"""SIGTERM: 128 + SIGTERM."""
