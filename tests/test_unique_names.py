"""One name, one thing: no two modules define a public class or function of the same name, unless it is one idea."""

import ast
from collections import defaultdict
from pathlib import Path

import perdure

PACKAGE = Path(perdure.__file__).parent

ONE_IDEA = {
    # The two databases, behind the protocol of stores: callers don't know which one they have.
    "apply_group": "store/postgres store/sqlite",
    "books_of": "store/postgres store/sqlite",
    "list_rows": "store/postgres store/sqlite",
    "load": "store/postgres store/sqlite",
    "load_all": "store/postgres store/sqlite",
    "migrate": "store/postgres/connections store/sqlite/connections",
    "next_books": "store/postgres store/sqlite",
    "scope_values": "store/postgres/connections store/sqlite/connections",
    # The rules of graphs: the checker calls `problems` of each module.
    "problems": "core/graph/rules",
    # Public names of two packages, each with the term of its field: a call of a task, and a call of an operation.
    "Call": "authoring operations",
} | {
    # One vocabulary: the command line, the HTTP API and the client call a thing by one word. Each name is there once.
    "audit": "api/runs client",
    "count_runs": "api/runs client/runs",
    "diff": "api/runs cli/runs",
    "explain": "api/runs core/runs",
    "fork": "api/runs cli/runs",
    "history": "api/runs cli/runs",
    "hosts": "api/storage cli",
    "ledger": "api/runs cli/runs",
    "list_runs": "api/runs client/runs",
    "list_schedules": "api/storage cli/schedules",
    "list_tokens": "api/doors cli",
    "operation": "api/storage authoring",
    "pause_schedule": "api/storage cli/schedules",
    "queues": "api/storage cli",
    "respond": "api/runs cli/runs",
    "result": "api/runs cli/runs",
    "resume_schedule": "api/storage cli/schedules",
    "retry_step": "api/runs cli/runs",
    "show_log": "api/doors cli/op",
    "show_schedule": "api/storage cli/schedules",
    "skip_step": "api/runs cli/runs",
    "sql": "api/storage cli/runs",
    "start_run": "api/runs cli/runs",
    "stop": "api/runs cli/runs",
    # What the HTTP API and the dashboard read and answer. Nothing below imports them, so no reader meets two at once.
    "ForkRequest": "api/runs core/runs",
    "Gate": "api/doors host/tasks",
    "GraphSource": "api/runs cli/graph",
    "Problem": "api core/graph",
    "SignalRequest": "api/runs core/graph",
    "invalid": "api core/graph",
    "parts_of": "api/doors authoring/graphs/compiler",
    "status_of": "api client/runs",
}
"""The names that several modules define, with the folders of these modules."""


def test_only_one_idea_has_a_name_in_several_modules() -> None:
    found: dict[str, set[Path]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if not node.name.startswith("_"):
                    found[node.name].add(path.relative_to(PACKAGE))
    shared = {
        name: " ".join(sorted({path.parent.as_posix() for path in paths}))
        for name, paths in found.items()
        if len(paths) > 1
    }
    assert shared == ONE_IDEA, "rename one of them, or say here why they are one idea"
