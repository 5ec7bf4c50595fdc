"""What can't be compiled: all of it is collected, and told at once."""

import ast
from typing import NamedTuple

from perdure.core.errors import CannotCompile


class Finding(NamedTuple):
    """A place in the source, what stands there, and what to write instead."""

    file: str
    line: int
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}; {self.instead}"


class Problems:
    """The findings of one function."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._findings: set[Finding] = set()

    def add(self, place: ast.AST | int, what: str, instead: str) -> None:
        line = place if isinstance(place, int) else int(getattr(place, "lineno", 0))
        self._findings.add(Finding(self._file, line, what, instead))

    def require_none(self, name: str) -> None:
        """Raise all that was found."""
        found = tuple(sorted(self._findings))
        if found:
            raise CannotCompile(
                f"graph {name!r} can't be compiled",
                "\n  ".join(["change these lines", *map(str, found)]),
                found,
            )
