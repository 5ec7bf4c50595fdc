"""The table of commands. The module of a command is imported when the command runs."""

from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App, Parameter

INTERRUPTED = 130
"""Exit code after Ctrl-C: the shell convention 128 + SIGINT."""

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
    help="Kill a worker in the middle of a step and watch its run resume.",
)
app.command(
    "perdure.cli.worker.command:worker",
    name="worker",
    help="Run an engine in one or more processes and restart them if they fail.",
)

operations = App(
    name="op",
    help="Inspect, abort and recover operations of several processes.",
    default_parameter=Parameter(negative=()),
)
app.command(operations)
for _name, _function, _help in (
    ("list", "list_operations", "List current operations; with --all also those in the backups."),
    (
        "show",
        "show_operation",
        "Show the participants of an operation, their calls and heartbeats.",
    ),
    ("watch", "watch_operation", "Show an operation until it ends."),
    ("log", "show_log", "Print the log of an operation."),
    ("abort", "abort_operation", "Make an operation fail and show who will clean up."),
    ("recover", "recover_operation", "End an operation whose participants are all gone."),
):
    operations.command(f"perdure.cli.op.commands:{_function}", name=_name, help=_help)

graphs = App(
    name="graph",
    help="Check, draw and deploy graphs.",
    default_parameter=Parameter(negative=()),
)
app.command(graphs)
for _name, _function, _help in (
    ("check", "check_graphs", "Print all problems of graphs, with file, line and column."),
    ("deploy", "deploy", "Deploy the graphs of a file to a store."),
    ("activate", "activate", "Select the deployed version that new runs of a graph use."),
    ("list", "list_graphs", "List the graphs that are deployed to a store."),
    ("draw", "draw_graph", "Draw a graph as text, Mermaid or SVG."),
):
    graphs.command(f"perdure.cli.graph.commands:{_function}", name=_name, help=_help)


def run_command(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code."""
    try:
        code: int | None = app(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code or 0
