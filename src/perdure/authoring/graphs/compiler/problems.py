"""Collects the problems of one compilation, so that all are reported at once."""

import ast
from collections.abc import Iterable

from perdure.core.errors import CannotCompile, ExpressionProblem
from perdure.core.graph.model import Problem, SourceLocation


class Problems:
    """The problems in the source of one function, by position."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: dict[SourceLocation, Problem] = {}

    def add(self, at: ast.AST | ExpressionProblem, what: str, remedy: str) -> None:
        """Add a problem at a source node. Only the first problem at a position is kept."""
        line, column = getattr(at, "lineno", 0), getattr(at, "col_offset", 0)
        place = SourceLocation(self._file, line, column + 1)
        self._found.setdefault(place, Problem("", "", what, remedy, place))

    def __bool__(self) -> bool:
        return bool(self._found)

    def require_none(self, name: str) -> None:
        """Raise `CannotCompile` with all problems, if there are any."""
        found = [self._found[place] for place in sorted(self._found)]
        if found:
            raise cannot_compile(name, found)


def cannot_compile(name: str, problems: Iterable[Problem]) -> CannotCompile:
    """The error that lists all problems."""
    found = tuple(problems)
    lines = "\n  ".join(["change these lines", *map(str, found)])
    return CannotCompile(f"graph {name!r} can't be compiled", lines, found)
