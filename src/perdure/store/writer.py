"""Writing a list of bundles: as one group if possible, each bad bundle rejected alone.

`plan_writes` decides and does no input or output: it yields the groups to apply, one after the other, and is
told what became of each. `write` drives it in the thread of a database, `write_async` in the event loop.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TypeAlias

from perdure.core.errors import BundleRefused, CommitRejected
from perdure.store.bundle import Bundle
from perdure.store.group import Group, break_all, break_fences, merge

Outcomes: TypeAlias = list[CommitRejected | None]
"""Of each bundle, in order; `None` means durable."""


class StatementRefused(Exception):
    """The database refused a row of the group, and does not say whose."""


Rejected: TypeAlias = dict[int, CommitRejected]
"""Nobody, if the group was committed; else it was rolled back, and these must leave it."""

Plan: TypeAlias = Generator[Group, Rejected | StatementRefused, Outcomes]


def write(bundles: Sequence[Bundle], apply: Callable[[Group], Rejected]) -> Outcomes:
    """Commit what can be committed, with an `apply` that blocks."""
    plan = plan_writes(bundles)
    try:
        group = next(plan)
        while True:
            try:
                answer: Rejected | StatementRefused = apply(group)
            except StatementRefused as refused:
                answer = refused
            group = plan.send(answer)
    except StopIteration as end:
        return _outcomes(end)
    except BaseException:
        break_all(bundles)
        raise


async def write_async(
    bundles: Sequence[Bundle], apply: Callable[[Group], Awaitable[Rejected]]
) -> Outcomes:
    """Commit what can be committed, with an `apply` that is awaited."""
    plan = plan_writes(bundles)
    try:
        group = next(plan)
        while True:
            try:
                answer: Rejected | StatementRefused = await apply(group)
            except StatementRefused as refused:
                answer = refused
            group = plan.send(answer)
    except StopIteration as end:
        return _outcomes(end)
    except BaseException:
        break_all(bundles)
        raise


def _outcomes(end: StopIteration) -> Outcomes:
    outcomes: Outcomes = end.value
    return outcomes


def plan_writes(bundles: Sequence[Bundle]) -> Plan:
    """Bundles keep their order, and a rejected one takes along every later one of its runs."""
    outcomes: Outcomes = [None] * len(bundles)
    waiting = list(range(len(bundles)))
    while waiting:
        group, rejected = merge([bundles[i] for i in waiting])
        if not rejected:
            answer = yield group
            if not isinstance(answer, StatementRefused):
                rejected = answer
            elif group.size == 1:
                rejected = {0: refused(answer)}
            else:
                yield from _one_by_one(bundles, waiting[: group.size], outcomes)
        if rejected:
            for position, reason in rejected.items():
                outcomes[waiting[position]] = reason
                break_fences(bundles[waiting[position]])
            waiting = [i for position, i in enumerate(waiting) if position not in rejected]
        else:
            waiting = waiting[group.size :]
    return outcomes


def _one_by_one(
    bundles: Sequence[Bundle], positions: Sequence[int], outcomes: Outcomes
) -> Generator[Group, Rejected | StatementRefused, None]:
    """A statement failed: find the bundle at fault by committing each on its own."""
    for i in positions:
        group, rejected = merge([bundles[i]])
        if not rejected:
            answer = yield group
            if isinstance(answer, StatementRefused):
                rejected = {0: refused(answer)}
            else:
                rejected = answer
        if rejected:
            outcomes[i] = rejected[0]
            break_fences(bundles[i])


def refused(answer: StatementRefused) -> BundleRefused:
    """A bundle that holds a row which no database takes."""
    refusal = BundleRefused(
        f"the database refused a row ({answer})",
        "nothing of this bundle was written; the value at fault is named above",
    )
    refusal.__cause__ = answer
    return refusal
