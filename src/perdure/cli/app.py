"""The table of commands. The module of a command is imported when the command runs."""

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App, Parameter

from perdure.cli.exit_codes import INTERRUPTED, PIPE_CLOSED, REFUSED

app = App(
    name="perdure",
    help="Durable execution for Python: programs that survive any crash, with proof.",
    help_format="plaintext",
    version=lambda: version("perdure"),
    result_action="return_value",
    default_parameter=Parameter(negative=()),
)
app.register_install_completion_command(
    name="completion", help="Install completion for bash, zsh or fish.", add_to_startup=False
)

COMMANDS = (
    ("init:init", "Make a small project that runs."),
    ("demo:demo", "Kill a worker in the middle of a step and watch its run resume."),
    ("worker.command:worker", "Run an engine in one or more processes and restart them if they fail."),
    ("serve:serve", "Serve the dashboard and the HTTP API of a store."),
    ("tokens:audit_log", "List what was asked over the HTTP API, and by whom."),
    ("runs.starting:run_program", "Run a workflow in this process and print its result."),
    ("runs.acting:send", "Send a signal to a topic and key."),
    ("explain:explain_command", "Why does a run not move? What happens next, and what moves it?"),
    ("replay.command:replay", "Replay a run on the registered code, under a debugger if wanted."),
    ("preflight:preflight_command", "Would every open run resume on the registered code?"),
    ("inspecting:audit_command", "Compare the journal of each run with its ledger and its rows."),
    ("inspecting:verify_command", "Is every journal entry as it was written?"),
    ("backup:backup", "Copy a SQLite store while engines work on it."),
    ("move:move", "Move all runs to another store, open ones included."),
    ("hosts:hosts", "List the hosts, and whether each is alive."),
    ("hosts:queues", "List the queues, their tasks and the hosts that serve them."),
    ("runs.listing:sql", "Read from the store with a query of your own."),
    ("mcp:mcp", "Let an assistant look at runs and act on them, over the Model Context Protocol."),
    ("doctor:doctor", "Check this installation, and the store if one is named."),
)  # fmt: skip
for _where, _help in COMMANDS:
    _name = (
        _where.rpartition(":")[2]
        .removesuffix("_command")
        .removesuffix("_program")
        .replace("_", "-")
    )
    app.command(f"perdure.cli.{_where}", name=_name, help=_help)

GROUPS = (
    (
        "runs",
        "Look at runs, and move them on.",
        "runs",
        (
            ("list", "listing:print_runs", "List runs, the newest first."),
            ("count", "listing:count", "Count runs."),
            ("show", "showing:show_run", "Show a run, why it does not move, and its steps."),
            ("watch", "showing:watch", "Show a run until it is over."),
            ("history", "books:history", "Print the journal of a run, with the postings beside."),
            ("ledger", "books:ledger", "Print the ledger of a run, its digits spelled out."),
            ("start", "starting:start_run", "Start a run, which the workers of the store execute."),
            ("result", "acting:result", "Wait until a run is over, and print its result."),
            ("signal", "acting:signal", "Send a run a signal."),
            ("ask", "acting:ask", "Send a run a request, and print its reply."),
            ("respond", "acting:respond", "Answer a step of a graph whose task responded with 202."),
            ("pause", "acts:pause_runs", "Pause runs."),
            ("resume", "acts:resume_runs", "End the pause of runs."),
            ("cancel", "acts:cancel", "Request that runs are cancelled."),
            ("stop", "acts:stop", "End runs as cancelled at once, without clean-up."),
            ("approve", "acts:approve_runs", "Approve runs that wait for approval."),
            ("retry-step", "acts:retry_step", "Begin the next logical attempt of a parked step."),
            ("skip-step", "acts:skip_step", "Settle a parked step without another attempt."),
            ("update-params", "acts:update_params", "Change parameters of a run."),
            ("fork", "forking:fork", "Start a run that begins like another, and executes a step again."),
            ("retry", "forking:retry", "Start a run with the input of another."),
            ("diff", "forking:diff", "Compare two runs step by step."),
            ("export", "exporting:export", "Write a run to a file, to replay it elsewhere."),
            ("archive", "leaving:archive", "Move runs that are over to the archive."),
            ("erase", "leaving:erase_command", "Erase the data of runs that are over, with receipts."),
            ("purge", "leaving:purge", "Remove runs that are over from the store and the archive."),
            ("trace", "tracing:trace", "Print the spans of a run and its attempts as OTLP JSON."),
        ),
    ),
    (
        "retention",
        "The policies by which runs leave the store.",
        "retention.commands",
        (
            ("list", "list_policies", "List the policies of an engine, and the runs that are due."),
            ("run", "run_policies", "Apply the policies of an engine now."),
        ),
    ),
    (
        "store",
        "Maintain the database.",
        "retention",
        (("compact", "compacting:compact", "Rewrite the store without free space."),),
    ),
    (
        "schedule",
        "Look at schedules, and change when they tick.",
        "schedules",
        (
            ("list", "reading:list_schedules", "List the schedules of a store."),
            ("show", "reading:show_schedule", "Show a schedule, its next instants and its last ticks."),
            ("ticks", "reading:ticks", "List what became of the newest ticks."),
            ("next", "reading:next_", "List the next instants at which a schedule ticks."),
            ("pause", "acting:pause_schedule", "Pause a schedule."),
            ("resume", "acting:resume_schedule", "End the pause of a schedule."),
            ("trigger", "acting:trigger", "Start one more run of a schedule at once."),
            ("backfill", "acting:backfill", "Start the runs of all ticks in a range."),
            ("delete", "acting:delete", "Delete a schedule; its runs stay."),
        ),
    ),
    (
        "bus",
        "Look at event buses, and publish events again.",
        "buses.bus",
        (
            ("list", "list_buses", "List the event buses of a store, and how far each is behind."),
            ("show", "show_bus", "Show an event bus, and why it takes no events."),
            ("replay", "replay_bus", "Publish events to one bus once more."),
            ("remove", "remove_bus", "Forget a bus that no engine has any more."),
        ),
    ),
    (
        "dlq",
        "Look at events that a bus refused, and handle them.",
        "buses.letters",
        (
            ("list", "list_letters", "List dead letters."),
            ("show", "show_letter", "Show a dead letter."),
            ("replay", "replay_letters", "Publish dead letters again."),
            ("drop", "drop", "Delete dead letters."),
        ),
    ),
    (
        "limits",
        "Look at limits, and change them.",
        "limits.commands",
        (
            ("list", "list_limits", "List limits, the runs that hold them, and those that wait."),
            ("show", "show_limit", "Show a limit in each scope and for each key."),
            ("set", "set_", "Replace numbers of a limit until they are reset."),
            ("reset", "reset", "Let the numbers of the code hold again."),
        ),
    ),
    (
        "token",
        "Make, list and revoke tokens of the HTTP API.",
        "tokens",
        (
            ("create", "create_token", "Make a token, and print it."),
            ("list", "list_tokens", "List the tokens."),
            ("revoke", "revoke", "Revoke a token."),
        ),
    ),
    (
        "op",
        "Inspect, abort and recover operations of several processes.",
        "op.commands",
        (
            ("list", "list_operations", "List current operations; with --all also those in the backups."),
            ("show", "show_operation", "Show the participants of an operation, their calls and heartbeats."),
            ("watch", "watch_operation", "Show an operation until it ends."),
            ("log", "show_log", "Print the log of an operation."),
            ("abort", "abort_operation", "Make an operation fail and show who will clean up."),
            ("recover", "recover_operation", "End an operation whose participants are all gone."),
        ),
    ),
    (
        "graph",
        "Check, draw and deploy graphs.",
        "graph.commands",
        (
            ("check", "check_graphs", "Print all problems of graphs, with file, line and column."),
            ("deploy", "deploy", "Deploy the graphs of a file to a store."),
            ("activate", "activate", "Select the deployed version that new runs of a graph use."),
            ("list", "list_graphs", "List the graphs that are deployed to a store."),
            ("draw", "draw_graph", "Draw a graph as text, Mermaid or SVG."),
        ),
    ),
)  # fmt: skip
for _group, _about, _module, _commands in GROUPS:
    _table = App(name=_group, help=_about, default_parameter=Parameter(negative=()))
    app.command(_table)
    for _name, _function, _help in _commands:
        _where = f"{_module}.{_function}" if ":" in _function else f"{_module}:{_function}"
        _table.command(f"perdure.cli.{_where}", name=_name, help=_help)


def run_command(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code. A user's mistake is printed without a traceback."""
    try:
        code: int | None = app(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter would flush once more at its end, and print the error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        return _refused(error)
    return code or 0


def _refused(error: Exception) -> int:
    # Imported here: `--help` needs none of it.
    from perdure.cli.importing import CodeFailed  # noqa: PLC0415 - only errors need it
    from perdure.core.errors import PerdureError  # noqa: PLC0415 - only errors need it

    if not isinstance(error, PerdureError):
        raise error
    if isinstance(error, CodeFailed) and error.__cause__ is not None:
        traceback.print_exception(error.__cause__)
    print(f"perdure: {error}", file=sys.stderr)
    return REFUSED
