"""The report of a run of benchmarks: tables as they come, and all goals at the end."""

import sys
from typing import NamedTuple


class Goal(NamedTuple):
    """What a figure should be at least, or at most."""

    what: str
    store: str
    measured: float
    bound: float
    is_least: bool
    unit: str

    @property
    def holds(self) -> bool:
        return self.measured >= self.bound if self.is_least else self.measured <= self.bound

    def cells(self) -> tuple[str, ...]:
        side = "at least" if self.is_least else "at most"
        return (
            self.what,
            self.store,
            _amount(self.measured, self.unit),
            f"{side} {_amount(self.bound, self.unit)}",
            "yes" if self.holds else "**no**",
        )


class Report:
    """Prints Markdown, line by line, as soon as a line is known."""

    def __init__(self) -> None:
        self._goals: list[Goal] = []

    def say(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def table(self, title: str, *columns: str) -> None:
        """Begin a table. Its first column is a text, the others are numbers."""
        self.say(f"\n{title}\n")
        self.row(*columns)
        self.say("|---|" + "---:|" * (len(columns) - 1))

    def row(self, *cells: str) -> None:
        self.say(f"| {' | '.join(cells)} |")

    def at_least(
        self, what: str, store: str, measured: float, bound: float, unit: str = ""
    ) -> None:
        self._goals.append(Goal(what, store, measured, bound, True, unit))

    def at_most(self, what: str, store: str, measured: float, bound: float, unit: str = "") -> None:
        self._goals.append(Goal(what, store, measured, bound, False, unit))

    def close(self) -> None:
        """Print every goal whose figures were measured."""
        if self._goals:
            self.table("goals", "goal", "store", "measured", "goal", "holds")
        for goal in self._goals:
            self.row(*goal.cells())
        missed = [f"{goal.what} ({goal.store})" for goal in self._goals if not goal.holds]
        if self._goals:
            self.say(
                f"\n{len(self._goals) - len(missed)} of {len(self._goals)} goals hold"
                + (f"; not: {', '.join(missed)}" if missed else "")
            )


def _amount(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
    return f"{number} {unit}".rstrip()
