"""What bundles change in the tables that index graphs: readiness, inbox and hooks. Pure.

A change is kept as what is left of it: rows that a bundle or a group both makes and takes away are never written, so
a node that becomes ready where it was reached costs nothing.
"""

from collections.abc import Iterator

from perdure.core.errors import ReadinessOverflow
from perdure.core.ids import RunId, StepId
from perdure.store.records import Broadcast, Delivery, Hook

WAIT = "wait"
KEY = "key"
HOOK_KINDS = (WAIT, KEY)


class StepChange:
    """Of one node: first what is stored of it goes, if so; then this is added."""

    __slots__ = ("clears", "deliveries", "hooks", "required", "resolved", "unhooks")

    def __init__(self) -> None:
        self.clears = False
        """Whether its stored readiness and inbox go."""
        self.required = 0
        self.resolved = 0
        """0 if it is not tracked."""
        self.deliveries: list[Delivery] = []
        self.unhooks = False
        """Whether its stored hooks that wait go."""
        self.hooks: dict[tuple[str, RunId], Hook] = {}

    @property
    def is_blank(self) -> bool:
        return not (self.clears or self.resolved or self.deliveries or self.unhooks or self.hooks)

    def clear(self) -> None:
        """It is ready. If all that it waited for was resolved here, nothing of it is stored yet."""
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
        """Whether so many predecessors more can be resolved."""
        is_same = not self.resolved or required == self.required
        return is_same and self.resolved + resolved <= required

    def follow(self, later: "StepChange") -> None:
        """Become what both are, one after the other."""
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
    """Of one run: first what is stored of all its nodes goes, if so; then that of each node."""

    __slots__ = ("clears", "steps", "unhooks")

    def __init__(self) -> None:
        self.clears = False
        self.unhooks = False
        self.steps: dict[StepId, StepChange] = {}

    @property
    def is_repeatable(self) -> bool:
        """Whether to write it twice is to write it once."""
        return self.clears or not any(
            change.resolved or change.deliveries for change in self.steps.values()
        )

    def step(self, step: StepId) -> StepChange:
        change = self.steps.get(step)
        if change is None:
            change = self.steps[step] = StepChange()
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

    def fits(self, later: "RunChange") -> bool:
        """Whether the nodes that both track can be tracked by both."""
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
        for step, change in later.steps.items():
            own = self.step(step)
            own.follow(change)
            if own.is_blank:
                del self.steps[step]

    def _drop_blank(self) -> None:
        self.steps = {s: change for s, change in self.steps.items() if not change.is_blank}


class GraphIndex:
    """What a bundle, or a group, changes of all its graphs."""

    __slots__ = ("broadcasts", "runs")

    def __init__(self) -> None:
        self.runs: dict[RunId, RunChange] = {}
        self.broadcasts: list[Broadcast] = []

    def __bool__(self) -> bool:
        """Whether anything is left to write."""
        return bool(self.broadcasts) or any(
            run.clears or run.unhooks or run.steps for run in self.runs.values()
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
        """Whether both can't be written at once: they do not fit, or the order of keys and signals would be lost."""
        if any(
            run_id in self.runs and not self.runs[run_id].fits(change)
            for run_id, change in later.runs.items()
        ):
            return True
        if not self.broadcasts:
            return False
        signalled = {broadcast.mailbox for broadcast in self.broadcasts}
        scrubbed = {broadcast.mailbox for broadcast in self.broadcasts if broadcast.scrub}
        return any(hook.kind == KEY and hook.mailbox in signalled for hook in later.hooks()) or any(
            broadcast.mailbox in scrubbed for broadcast in later.broadcasts
        )

    def follow(self, later: "GraphIndex") -> None:
        """Become what both are, one after the other."""
        for run_id, change in later.runs.items():
            self.run(run_id).follow(change)
        self.broadcasts += later.broadcasts

    def steps(self) -> Iterator[tuple[RunId, StepId, StepChange]]:
        for run_id, run in self.runs.items():
            for step, change in run.steps.items():
                yield run_id, step, change

    def hooks(self) -> Iterator[Hook]:
        for _, _, change in self.steps():
            yield from change.hooks.values()


def overflow(
    node: tuple[RunId, StepId], stored: tuple[int, int], more: tuple[int, int]
) -> ReadinessOverflow:
    """`stored` and `more` are the numbers of predecessors that are required, and resolved."""
    run_id, step = node
    return ReadinessOverflow(
        f"step {step!r} of run {run_id!r} has {stored[1]} of {stored[0]} predecessors resolved, and "
        f"can't have {more[1]} of {more[0]} more",
        "resolve each predecessor once, and require the same number each time",
    )
