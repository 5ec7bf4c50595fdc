"""Schedules: every decision that fate takes in a run of a program, enumerated.

A program under exploration asks `choose` wherever something can go one way or another. The first
option is what normally happens; any other is a *fault*. `schedules` runs through all ways to place up
to a number of faults, by taking each run's recorded choices and deviating from them once more.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure.core.errors import PerdureError


class Choice(NamedTuple):
    """What was asked, and which of how many options was taken."""

    question: str
    options: tuple[str, ...]
    taken: int

    def __str__(self) -> str:
        return f"{self.question}: {self.options[self.taken]}"


class NotRepeatable(PerdureError):
    """The program under exploration did something else than the last time."""

    code = "not-repeatable"


class Chooser:
    """Takes the given options first, then the normal ones, and records all of them.

    If it is strict, a program that does something else than the last time is found out. One that can't repeat itself,
    because a real server answers when it likes, gets what is normal where an option is not there any more.
    """

    def __init__(self, prefix: Sequence[int] = (), *, is_strict: bool = True) -> None:
        self._prefix = prefix
        self._is_strict = is_strict
        self.choices: list[Choice] = []

    def choose(self, question: str, options: Sequence[str]) -> str:
        place = len(self.choices)
        taken = self._prefix[place] if place < len(self._prefix) else 0
        if taken >= len(options) and not self._is_strict:
            taken = 0
        if taken >= len(options):
            raise NotRepeatable(
                f"choice {place} was one of more than {taken} before, and is {question!r} of "
                f"{len(options)} now",
                "a schedule can be repeated only if the program does the same thing every time: "
                "take clocks, randomness and real waiting out of its tasks",
            )
        self.choices.append(Choice(question, tuple(options), taken))
        return options[taken]

    @property
    def faults(self) -> list[Choice]:
        return [choice for choice in self.choices if choice.taken]


class Schedules:
    """All schedules with at most `max_faults` faults. Report each run's chooser before the next."""

    def __init__(self, max_faults: int, *, is_strict: bool = True) -> None:
        self._max_faults = max_faults
        self._is_strict = is_strict
        self._pending: list[tuple[int, ...]] = [()]

    def __iter__(self) -> Iterator[Chooser]:
        while self._pending:
            prefix = self._pending.pop()
            chooser = Chooser(prefix, is_strict=self._is_strict)
            yield chooser
            self._deviate(prefix, chooser)

    def _deviate(self, prefix: tuple[int, ...], chooser: Chooser) -> None:
        """Queue each way to go wrong once more, later than the faults that this run had."""
        if sum(taken != 0 for taken in prefix) >= self._max_faults:
            return
        taken = tuple(choice.taken for choice in chooser.choices)
        for place in range(len(prefix), len(taken)):
            for option in range(1, len(chooser.choices[place].options)):
                self._pending.append((*taken[:place], option))
