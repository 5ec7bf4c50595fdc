"""Writes a list of bundles: as one group if possible, otherwise rejecting each bad bundle alone.

`plan_writes` decides and does no input or output: it yields one group after the other and receives the outcome of
each. `PendingWrites` holds a plan that is being executed; `write` executes it in a connection's thread,
`write_async` in the event loop.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TypeAlias

from perdure.core.errors import BundleRefused, CommitRejected
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.conflict_keys import ConflictKeys
from perdure.store.commit.group import Group, break_all, break_fences, merge


class StatementRefused(Exception):
    """The database refused a row of the group and does not say which bundle the row is from."""


class Contended(Exception):
    """Another transaction holds a lock that the group needs; the database does not say which bundle needs it."""


class Undecided:
    """The outcome of a contended bundle, and of one that must not overtake a contended one: neither written nor
    rejected."""


UNDECIDED = Undecided()

BundleOutcomes: TypeAlias = list[CommitRejected | Undecided | None]
"""One outcome per bundle, in order; `None` means durable."""

Rejected: TypeAlias = dict[int, CommitRejected]
"""Empty if the group was committed. Otherwise it was rolled back: reasons by the position of each bad bundle."""

GroupOutcome: TypeAlias = Rejected | StatementRefused | Contended
WritePlan: TypeAlias = Generator[Group, GroupOutcome, BundleOutcomes]


class PendingWrites:
    """The writes of a list of bundles. The caller applies `group` and reports its outcome, until `group` is `None`."""

    def __init__(self, bundles: Sequence[Bundle], *, alone: bool = False) -> None:
        """With `alone`, each bundle is a group of its own."""
        self._bundles = bundles
        self._plan = plan_writes(bundles, alone=alone)
        self.group: Group | None = None
        """`None` when every bundle is decided."""
        self.outcomes: BundleOutcomes = []
        self._advance(lambda: next(self._plan))

    def report(self, outcome: GroupOutcome) -> None:
        """Continue after the current group with its outcome."""
        self._advance(lambda: self._plan.send(outcome))

    def abandon(self) -> None:
        """Stop with an unknown outcome: break the fences of all bundles."""
        self.group = None
        break_all(self._bundles)

    def _advance(self, next_group: Callable[[], Group]) -> None:
        try:
            self.group = next_group()
        except StopIteration as end:
            self.group = None
            self.outcomes = end.value
        except BaseException:
            self.abandon()
            raise


def write(writing: PendingWrites, apply: Callable[[Group], Rejected]) -> BundleOutcomes:
    """Write all groups that are left, with an `apply` that blocks."""
    while (group := writing.group) is not None:
        try:
            outcome: GroupOutcome = apply(group)
        except (StatementRefused, Contended) as problem:
            outcome = problem
        except BaseException:
            writing.abandon()
            raise
        writing.report(outcome)
    return writing.outcomes


async def write_async(
    writing: PendingWrites, apply: Callable[[Group], Awaitable[Rejected]]
) -> BundleOutcomes:
    """Write all groups that are left, with an asynchronous `apply`."""
    while (group := writing.group) is not None:
        try:
            outcome: GroupOutcome = await apply(group)
        except (StatementRefused, Contended) as problem:
            outcome = problem
        except BaseException:
            writing.abandon()
            raise
        writing.report(outcome)
    return writing.outcomes


def plan_writes(bundles: Sequence[Bundle], *, alone: bool = False) -> WritePlan:
    """Yields groups to apply, receives their outcomes, and returns the outcome of each bundle.

    Bundles keep their order; when one is rejected, all later bundles of its runs are rejected too. A contended bundle
    is found by halving the group; it stays undecided, with every bundle that must not overtake it.
    """
    outcomes: BundleOutcomes = [None] * len(bundles)
    everything = range(len(bundles))
    portions = deque([i] for i in everything) if alone else deque([list(everything)])
    contended = ConflictKeys()
    while portions:
        waiting = _uncontended(bundles, portions.popleft(), contended, outcomes)
        if not waiting:
            continue
        group, rejected = merge([bundles[i] for i in waiting])
        tried, rest = waiting[: group.size], waiting[group.size :]
        if not rejected:
            outcome = yield group
            if isinstance(outcome, dict) and not (len(tried) > 1 and _has_refusal(outcome)):
                rejected = outcome
            elif len(tried) > 1:
                portions.extendleft((rest, *reversed(_smaller_groups(tried, outcome))))
                continue
            elif isinstance(outcome, StatementRefused):
                rejected = {0: bundle_refused(outcome)}
            else:
                outcomes[tried[0]] = UNDECIDED
                contended.add(bundles[tried[0]])
        if rejected:
            for position, reason in rejected.items():
                outcomes[tried[position]] = reason
                break_fences(bundles[tried[position]])
            rest = [i for position, i in enumerate(waiting) if position not in rejected]
        portions.appendleft(rest)
    return outcomes


def _uncontended(
    bundles: Sequence[Bundle],
    waiting: list[int],
    contended: ConflictKeys,
    outcomes: BundleOutcomes,
) -> list[int]:
    """The bundles that share no key with a contended one; the others stay undecided, and their keys contended."""
    if not contended:
        return waiting
    uncontended = []
    for i in waiting:
        if contended.overlap(bundles[i]):
            contended.add(bundles[i])
            outcomes[i] = UNDECIDED
        else:
            uncontended.append(i)
    return uncontended


def _has_refusal(rejected: Rejected) -> bool:
    """Whether a bundle itself is at fault: then earlier bundles of its run, which share its rejection, are not."""
    return any(isinstance(reason, BundleRefused) for reason in rejected.values())


def _smaller_groups(tried: list[int], outcome: GroupOutcome) -> Sequence[list[int]]:
    """The groups to try instead of one that failed.

    Halves after a lock: each attempt waits for it, and halving needs few. Single bundles after a refused row.
    """
    if isinstance(outcome, Contended):
        middle = len(tried) // 2
        return tried[:middle], tried[middle:]
    return [[i] for i in tried]


def bundle_refused(cause: StatementRefused) -> BundleRefused:
    """The rejection of a bundle that holds a row which the database refuses."""
    refusal = BundleRefused(
        f"the database refused a row ({cause})",
        "correct the value that it names: nothing of this bundle was written",
    )
    refusal.__cause__ = cause
    return refusal
