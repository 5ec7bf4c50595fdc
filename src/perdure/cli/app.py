"""The commands, by name. The module of a command is imported when it is run."""

from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

app = App(
    name="perdure",
    help="Durable execution for Python: programs that survive any crash, with proof.",
    help_format="plaintext",
    version=lambda: version("perdure"),
    result_action="return_value",
)
app.command(
    "perdure.cli.demo:demo",
    name="demo",
    help="Kill a worker in the middle of a step, and watch its run go on.",
)
app.command(
    "perdure.cli.worker.command:worker",
    name="worker",
    help="Run an engine in one or more processes, and keep them running.",
)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command. Returns its exit code."""
    try:
        code: int | None = app(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code or 0
