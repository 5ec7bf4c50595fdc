"""Changes to the tables that index graphs: readiness, inbox and hooks. Pure.

Changes are kept in their net form: rows that a bundle or a group both adds and removes are never written, so a node
that becomes ready in the bundle that reached it costs nothing.
"""

from collections.abc import Iterator

from perdure.core.errors import ReadinessOverflow
from perdure.core.ids import RunId, StepId
from perdure.store.rows.records import BroadcastRow, HookRow, InboxRow

WAIT = "wait"
KEY = "key"
HOOK_KINDS = (WAIT, KEY)


class IndexedStepChange:
    """The change of one node: stored rows are deleted first, if at all; then new rows are added."""

    __slots__ = ("clears", "deliveries", "hooks", "required", "resolved", "unhooks")

    def __init__(self) -> None:
        self.clears = False
        """Whether its stored readiness and inbox rows are deleted."""
        self.required = 0
        self.resolved = 0
        """Predecessors resolved by this change; 0 if the node is not tracked."""
        self.deliveries: list[InboxRow] = []
        self.unhooks = False
        """Whether its stored hooks of kind `wait` are deleted."""
        self.hooks: dict[tuple[str, RunId], HookRow] = {}

    @property
    def is_blank(self) -> bool:
        return not (self.clears or self.resolved or self.deliveries or self.unhooks or self.hooks)

    def clear(self) -> None:
        """The node is ready. If this change resolved all its predecessors, no row of it is stored yet."""
        self.clears = self.clears or not 0 < self.resolved == self.required
        self.drop_rows()

    def drop_rows(self) -> None:
        self.required = self.resolved = 0
        self.deliveries = []

    def drop_waits(self) -> None:
        self.hooks = {key: hook for key, hook in self.hooks.items() if hook.kind != WAIT}

    def unhook(self) -> None:
        self.unhooks = True
        self.drop_waits()

    def fits(self, required: int, resolved: int) -> bool:
        """Whether `resolved` more predecessors can be resolved."""
        is_same = not self.resolved or required == self.required
        return is_same and self.resolved + resolved <= required

    def follow(self, later: "IndexedStepChange") -> None:
        """Become the net change of this one followed by `later`."""
        if later.clears:
            self.clear()
        if later.resolved:
            self.required = later.required
            self.resolved += later.resolved
        self.deliveries += later.deliveries
        if later.unhooks:
            self.unhook()
        self.hooks = later.hooks | self.hooks


class RunChange:
    """The change of one run: stored rows of all its nodes are deleted first, if at all; then each node changes."""

    __slots__ = ("clears", "dropped_keys", "steps", "unhooks")

    def __init__(self) -> None:
        self.clears = False
        self.unhooks = False
        self.dropped_keys: dict[tuple[StepId, RunId], None] = {}
        """Steps and mailboxes of search keys that are deleted before new hooks are added."""
        self.steps: dict[StepId, IndexedStepChange] = {}

    @property
    def is_repeatable(self) -> bool:
        """Whether writing the change twice has the same effect as writing it once."""
        return self.clears or not any(
            change.resolved or change.deliveries for change in self.steps.values()
        )

    def step(self, step: StepId) -> IndexedStepChange:
        change = self.steps.get(step)
        if change is None:
            change = self.steps[step] = IndexedStepChange()
        return change

    def ready(self, step: StepId) -> None:
        change = self.step(step)
        change.clear()
        if change.is_blank:
            del self.steps[step]

    def clear(self) -> None:
        self.clears = True
        for change in self.steps.values():
            change.clears = False
            change.drop_rows()
        self._drop_blank()

    def unhook(self) -> None:
        self.unhooks = True
        for change in self.steps.values():
            change.unhooks = False
            change.drop_waits()
        self._drop_blank()

    def drop_key(self, step: StepId, mailbox: RunId) -> None:
        """Delete the search key, stored or added before."""
        self.dropped_keys[step, mailbox] = None
        change = self.steps.get(step)
        if change is not None:
            change.hooks.pop((KEY, mailbox), None)
            self._drop_blank()

    def fits(self, later: "RunChange") -> bool:
        """Whether each node that both track can take both counts."""
        return later.clears or all(
            own.fits(change.required, change.resolved)
            for step, change in later.steps.items()
            if change.resolved and not change.clears
            for own in [self.steps.get(step)]
            if own is not None
        )

    def follow(self, later: "RunChange") -> None:
        if later.clears:
            self.clear()
        if later.unhooks:
            self.unhook()
        for dropped in later.dropped_keys:
            self.drop_key(*dropped)
        for step, change in later.steps.items():
            own = self.step(step)
            own.follow(change)
            if own.is_blank:
                del self.steps[step]

    def _drop_blank(self) -> None:
        self.steps = {s: change for s, change in self.steps.items() if not change.is_blank}


class GraphIndex:
    """The changes of a bundle, or of a group, to the graph tables."""

    __slots__ = ("broadcasts", "runs")

    def __init__(self) -> None:
        self.runs: dict[RunId, RunChange] = {}
        self.broadcasts: list[BroadcastRow] = []

    def __bool__(self) -> bool:
        """Whether anything is left to write."""
        return bool(self.broadcasts) or any(
            run.clears or run.unhooks or run.dropped_keys or run.steps for run in self.runs.values()
        )

    def run(self, run_id: RunId) -> RunChange:
        change = self.runs.get(run_id)
        if change is None:
            change = self.runs[run_id] = RunChange()
        return change

    def track(self, run_id: RunId, step: StepId, required: int, resolved: int) -> None:
        change = self.run(run_id).step(step)
        if not change.fits(required, resolved):
            stored = change.required or required, change.resolved
            raise overflow((run_id, step), stored, (required, resolved))
        change.required = required
        change.resolved += resolved

    def must_wait(self, later: "GraphIndex") -> bool:
        """Whether `later` must go into the next group: the counts don't fit, or a group would lose the order of search
        keys and broadcasts."""
        if any(
            run_id in self.runs and not self.runs[run_id].fits(change)
            for run_id, change in later.runs.items()
        ):
            return True
        if not self.broadcasts:
            return False
        if any(change.dropped_keys for change in later.runs.values()):
            return True
        signalled = {broadcast.mailbox for broadcast in self.broadcasts}
        scrubbed = {broadcast.mailbox for broadcast in self.broadcasts if broadcast.scrub}
        return any(hook.kind == KEY and hook.mailbox in signalled for hook in later.hooks()) or any(
            broadcast.mailbox in scrubbed for broadcast in later.broadcasts
        )

    def follow(self, later: "GraphIndex") -> None:
        """Become the net change of this one followed by `later`."""
        for run_id, change in later.runs.items():
            self.run(run_id).follow(change)
        self.broadcasts += later.broadcasts

    def steps(self) -> Iterator[tuple[RunId, StepId, IndexedStepChange]]:
        for run_id, run in self.runs.items():
            for step, change in run.steps.items():
                yield run_id, step, change

    def hooks(self) -> Iterator[HookRow]:
        for _, _, change in self.steps():
            yield from change.hooks.values()


def overflow(
    node: tuple[RunId, StepId], stored: tuple[int, int], more: tuple[int, int]
) -> ReadinessOverflow:
    """`stored` and `more` are counts of predecessors: required, resolved."""
    run_id, step = node
    return ReadinessOverflow(
        f"step {step!r} of run {run_id!r} has {stored[1]} of {stored[0]} predecessors resolved and "
        f"can't have {more[1]} of {more[0]} more",
        "resolve each predecessor once, and require the same number each time",
    )
