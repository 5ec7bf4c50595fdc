"""Checks that the end of a run leaves no child run behind: each has ended, or is cancelled with it, or is detached."""

from typing import Any

from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.registry import find
from perdure.core.graph.model import InterruptNode
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.replay.identity import parse_parent
from perdure.store.commit.bundle import Bundle


class ChildChecker:
    """Follows the commits of one schedule. Runs are named by the first run of their chain."""

    def __init__(self) -> None:
        self._origins: dict[RunId, RunId] = {}
        self._children: dict[RunId, set[RunId]] = {}
        """Runs that report to a parent, by parent. A detached run reports to none."""
        self._programs: dict[RunId, str] = {}
        self._ended: set[RunId] = set()
        self._cancelled: set[RunId] = set()
        """Runs to which a cancel was sent."""
        self._detaching: set[RunId] = set()
        """Runs that were interrupted and leave their children."""

    def check(self, bundle: Bundle) -> list[str]:
        """Record what the bundle made durable. Returns a text for each child that an ended run left behind."""
        for run, first in bundle.created:
            self._origins[run.run_id] = run.chain or run.run_id
            self._programs[run.run_id] = run.program
            started = first.entries[0].event
            parent = started.parent_id if isinstance(started, e.ExecutionStarted) else None
            if parent is not None:
                self._children.setdefault(self._origin(parse_parent(parent)[0]), set()).add(
                    self._origin(run.run_id)
                )
        self._cancelled |= {
            self._origin(message.run_id)
            for message in bundle.messages
            if message.kind.startswith("cancel")
        }
        appended = [*(first for _, first in bundle.created), *(more for _, more in bundle.appends)]
        ended = [
            each.run_id
            for each in appended
            for entry in each.entries
            if self._ends(each.run_id, entry.event)
        ]
        self._ended |= set(map(self._origin, ended))
        return [problem for run_id in ended for problem in self._left_behind(run_id)]

    def _ends(self, run_id: RunId, event: e.Event) -> bool:
        if isinstance(event, e.CancelRequested) and not event.descends:
            self._detaching.add(run_id)
        return isinstance(event, e.Terminal) and not isinstance(event, e.RunContinued)

    def _left_behind(self, parent: RunId) -> list[str]:
        if parent in self._detaching or _may_detach(self._programs.get(parent, "")):
            return []
        children = self._children.get(self._origin(parent), set())
        return [
            f"run {parent} has ended, and its child {child} is neither ended nor cancelled"
            for child in sorted(children - self._ended - self._cancelled)
        ]

    def _origin(self, run_id: RunId) -> RunId:
        return self._origins.get(run_id, run_id)


def _may_detach(program: str) -> bool:
    """Whether the program is a graph that may interrupt itself and leave its children."""
    found: Any = find("program", program)
    return isinstance(found, GraphProgram) and any(
        isinstance(node, InterruptNode) and not node.descend for node in found.model.nodes
    )
