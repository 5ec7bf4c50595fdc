"""Writing a list of bundles: as one group if possible, each bad bundle rejected alone.

`plan_writes` decides and does no input or output: it yields the groups to apply, one after the other, and is
told what became of each. `write` drives it in the thread of a database, `write_async` in the event loop.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TypeAlias

from perdure.core.errors import BundleRefused, CommitRejected
from perdure.store.bundle import Bundle
from perdure.store.group import Group, break_all, break_fences, merge
from perdure.store.subjects import Subjects


class StatementRefused(Exception):
    """The database refused a row of the group, and does not say whose."""


class Contended(Exception):
    """Somebody else's transaction holds what the group needs, and the database does not say which bundle needs it."""


class SetAside:
    """Of a bundle: it is not decided. What it needs is held by somebody else, or it follows one of that kind."""


SET_ASIDE = SetAside()

Outcomes: TypeAlias = list[CommitRejected | SetAside | None]
"""Of each bundle, in order; `None` means durable."""

Rejected: TypeAlias = dict[int, CommitRejected]
"""Nobody, if the group was committed; else it was rolled back, and these must leave it."""

Answer: TypeAlias = Rejected | StatementRefused | Contended
Plan: TypeAlias = Generator[Group, Answer, Outcomes]


def write(bundles: Sequence[Bundle], apply: Callable[[Group], Rejected]) -> Outcomes:
    """Commit what can be committed, with an `apply` that blocks."""
    plan = plan_writes(bundles)
    try:
        group = next(plan)
        while True:
            try:
                answer: Answer = apply(group)
            except (StatementRefused, Contended) as problem:
                answer = problem
            group = plan.send(answer)
    except StopIteration as end:
        return _outcomes(end)
    except BaseException:
        break_all(bundles)
        raise


async def write_async(
    bundles: Sequence[Bundle],
    apply: Callable[[Group], Awaitable[Rejected]],
    *,
    alone: bool = False,
) -> Outcomes:
    """Commit what can be committed, with an `apply` that is awaited; each bundle `alone`, if so."""
    plan = plan_writes(bundles, alone=alone)
    try:
        group = next(plan)
        while True:
            try:
                answer: Answer = await apply(group)
            except (StatementRefused, Contended) as problem:
                answer = problem
            group = plan.send(answer)
    except StopIteration as end:
        return _outcomes(end)
    except BaseException:
        break_all(bundles)
        raise


def _outcomes(end: StopIteration) -> Outcomes:
    outcomes: Outcomes = end.value
    return outcomes


def plan_writes(bundles: Sequence[Bundle], *, alone: bool = False) -> Plan:
    """Bundles keep their order, and a rejected one takes along every later one of its runs.

    One that contends with somebody else is found by halves, and set aside with all that must not overtake it.
    """
    outcomes: Outcomes = [None] * len(bundles)
    everything = range(len(bundles))
    portions = deque([i] for i in everything) if alone else deque([list(everything)])
    held = Subjects()
    while portions:
        waiting = _passing(bundles, portions.popleft(), held, outcomes)
        if not waiting:
            continue
        group, rejected = merge([bundles[i] for i in waiting])
        tried, rest = waiting[: group.size], waiting[group.size :]
        if not rejected:
            answer = yield group
            if isinstance(answer, dict) and not (len(tried) > 1 and _refuses(answer)):
                rejected = answer
            elif len(tried) > 1:
                portions.extendleft((rest, *reversed(_parts(tried, answer))))
                continue
            elif isinstance(answer, StatementRefused):
                rejected = {0: refused(answer)}
            else:
                outcomes[tried[0]] = SET_ASIDE
                held.add(bundles[tried[0]])
        if rejected:
            for position, reason in rejected.items():
                outcomes[tried[position]] = reason
                break_fences(bundles[tried[position]])
            rest = [i for position, i in enumerate(waiting) if position not in rejected]
        portions.appendleft(rest)
    return outcomes


def _passing(
    bundles: Sequence[Bundle], waiting: list[int], held: Subjects, outcomes: Outcomes
) -> list[int]:
    """Those that follow nothing which was set aside; the others are set aside, too."""
    if not held:
        return waiting
    passing = []
    for i in waiting:
        if held.concern(bundles[i]):
            held.add(bundles[i])
            outcomes[i] = SET_ASIDE
        else:
            passing.append(i)
    return passing


def _refuses(rejected: Rejected) -> bool:
    """Whether a bundle is at fault itself: what its run did before it in the same group is not."""
    return any(isinstance(reason, BundleRefused) for reason in rejected.values())


def _parts(tried: list[int], answer: Answer) -> Sequence[list[int]]:
    """What to try in place of a group that failed: of a refused row the database names the kind alone, so each
    bundle by itself; of a lock, which keeps the rest waiting, halves."""
    if isinstance(answer, Contended):
        middle = len(tried) // 2
        return tried[:middle], tried[middle:]
    return [[i] for i in tried]


def refused(answer: StatementRefused) -> BundleRefused:
    """A bundle that holds a row which no database takes."""
    refusal = BundleRefused(
        f"the database refused a row ({answer})",
        "nothing of this bundle was written; the value at fault is named above",
    )
    refusal.__cause__ = answer
    return refusal
