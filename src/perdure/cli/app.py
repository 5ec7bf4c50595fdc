"""The commands, by name. The module of a command is imported when it is run."""

from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App, Parameter

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

operations = App(
    name="op",
    help="Operations of several processes: who takes part, and how they end.",
    default_parameter=Parameter(negative=()),
)
app.command(operations)
for _name, _function, _help in (
    ("list", "list_operations", "List the operations under way, and with --all those in backup."),
    ("show", "show", "Show who takes part in an operation, their calls and heartbeats."),
    ("watch", "watch", "Show an operation until it ends."),
    ("log", "log", "Print the log of an operation."),
    ("abort", "abort", "Let an operation fail, and say who will clean up."),
    ("recover", "recover", "See to the end of an operation whose participants are gone."),
):
    operations.command(f"perdure.cli.op.commands:{_function}", name=_name, help=_help)

graphs = App(
    name="graph",
    help="Graphs: checked, drawn, and deployed to a store.",
    default_parameter=Parameter(negative=()),
)
app.command(graphs)
for _name, _function, _help in (
    ("check", "check", "Print all that is wrong with graphs, with file, line and column."),
    ("deploy", "deploy", "Deploy the graphs of a file to a store."),
    ("activate", "activate", "Let new runs of a graph be of a version that was deployed."),
    ("list", "list_graphs", "List what is deployed to a store."),
    ("draw", "draw", "Draw a graph as text, Mermaid or SVG."),
):
    graphs.command(f"perdure.cli.graph.commands:{_function}", name=_name, help=_help)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command. Returns its exit code."""
    try:
        code: int | None = app(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code or 0
