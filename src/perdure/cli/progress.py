"""A progress bar on standard error, for what takes longer than a second in a terminal."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from perdure.cli.output import console

SHOWN_AFTER_S = 1.0


class ProgressLine:
    """Counts what is done. The bar appears after a second, and is gone when the block ends."""

    def __init__(self, what: str, total: int | None = None, screen: Console | None = None) -> None:
        self.done = 0
        self._what = what
        self._total = total
        self._screen = screen or console(is_error=True)
        self._began_s = time.monotonic()
        self._bar: RichProgress | None = None
        self._task = TaskID(0)

    def advance(self, count: int = 1) -> None:
        self.reach(self.done + count)

    def reach(self, done: int, total: int | None = None) -> None:
        """`done` of the total is done; `total` replaces the earlier one."""
        self.done = done
        self._total = self._total if total is None else total
        if self._bar is None and self._screen.is_terminal:
            if time.monotonic() - self._began_s >= SHOWN_AFTER_S:
                self._bar = RichProgress(*_columns(), console=self._screen, transient=True)
                self._task = self._bar.add_task(self._what, total=self._total)
                self._bar.start()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=self._total)

    @property
    def rate(self) -> float:
        """Per second, since the start."""
        return self.done / max(time.monotonic() - self._began_s, 0.001)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _columns() -> tuple[ProgressColumn, ...]:
    return (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
