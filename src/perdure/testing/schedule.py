"""Schedules: enumerates every combination of faults in a run of a program.

The explorer calls `choose` wherever a fault can happen. The first option is the normal case; each other option is a
*fault*. `FaultSchedules` yields every way to place at most a given number of faults: it takes the recorded choices of
each run and deviates from them at one more choice.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure.core.errors import PerdureError


class Choice(NamedTuple):
    """A question, its options, and the index of the option that was taken."""

    question: str
    options: tuple[str, ...]
    taken: int

    def __str__(self) -> str:
        return f"{self.question}: {self.options[self.taken]}"


class NotRepeatable(PerdureError):
    """The program under exploration behaved differently from the previous run of the same schedule."""

    code = "not-repeatable"


class Chooser:
    """Repeats the choices of `prefix`, then takes normal options, and records every choice.

    A strict chooser raises `NotRepeatable` if a program no longer offers an option of the prefix. One that is not
    strict takes the normal option then: a program on a real database server can't repeat its timing exactly.
    """

    def __init__(self, prefix: Sequence[int] = (), *, is_strict: bool = True) -> None:
        self._prefix = prefix
        self._is_strict = is_strict
        self.choices: list[Choice] = []

    def choose(self, question: str, options: Sequence[str]) -> str:
        index = len(self.choices)
        taken = self._prefix[index] if index < len(self._prefix) else 0
        if taken >= len(options) and not self._is_strict:
            taken = 0
        if taken >= len(options):
            raise NotRepeatable(
                f"choice {index} had more than {taken} options before, and now is {question!r} with "
                f"{len(options)}",
                "a schedule is repeatable only if the program does the same every time: "
                "remove clocks, randomness and real waiting from its tasks",
            )
        self.choices.append(Choice(question, tuple(options), taken))
        return options[taken]

    @property
    def is_repeating(self) -> bool:
        """Whether a schedule explored before took the same choices until now, so that the same has happened."""
        return self._is_strict and len(self.choices) < len(self._prefix)

    @property
    def faults(self) -> list[Choice]:
        return [choice for choice in self.choices if choice.taken]


class FaultSchedules:
    """Yields a chooser for each schedule of at most `max_faults` faults.

    The caller runs its program with a chooser before it asks for the next one.
    """

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
        """Queue every schedule that adds one fault after the last fault of this one."""
        if sum(taken != 0 for taken in prefix) >= self._max_faults:
            return
        taken = tuple(choice.taken for choice in chooser.choices)
        for index in range(len(prefix), len(taken)):
            for option in range(1, len(chooser.choices[index].options)):
                self._pending.append((*taken[:index], option))
