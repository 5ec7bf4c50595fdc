"""Writing a list of bundles: as one group if possible, each bad bundle rejected alone.

`plan_writes` decides and does no input or output: it yields the groups to apply, one after the other, and is
told what became of each. A `Writing` is such a plan under way; `write` goes on with it in the thread of a database,
`write_async` in the event loop.
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


class Writing:
    """A list of bundles on its way to the database. `group` is to be applied next, and then told what became of it."""

    def __init__(self, bundles: Sequence[Bundle], *, alone: bool = False) -> None:
        """Each bundle `alone`, if so."""
        self._bundles = bundles
        self._plan = plan_writes(bundles, alone=alone)
        self.group: Group | None = None
        """`None` when every bundle is decided."""
        self.outcomes: Outcomes = []
        self._advance(lambda: next(self._plan))

    def tell(self, answer: Answer) -> None:
        self._advance(lambda: self._plan.send(answer))

    def give_up(self) -> None:
        """What becomes of the bundles is not known here any more."""
        self.group = None
        break_all(self._bundles)

    def _advance(self, go_on: Callable[[], Group]) -> None:
        try:
            self.group = go_on()
        except StopIteration as end:
            self.group = None
            self.outcomes = end.value
        except BaseException:
            self.give_up()
            raise


def write(writing: Writing, apply: Callable[[Group], Rejected]) -> Outcomes:
    """Commit what can be committed of what is left, with an `apply` that blocks."""
    while (group := writing.group) is not None:
        try:
            answer: Answer = apply(group)
        except (StatementRefused, Contended) as problem:
            answer = problem
        except BaseException:
            writing.give_up()
            raise
        writing.tell(answer)
    return writing.outcomes


async def write_async(writing: Writing, apply: Callable[[Group], Awaitable[Rejected]]) -> Outcomes:
    """The same, with an `apply` that is awaited."""
    while (group := writing.group) is not None:
        try:
            answer: Answer = await apply(group)
        except (StatementRefused, Contended) as problem:
            answer = problem
        except BaseException:
            writing.give_up()
            raise
        writing.tell(answer)
    return writing.outcomes


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
