"""What can't be compiled: all of it is collected, and told at once."""

import ast
from collections.abc import Iterable

from perdure.core.errors import CannotCompile, ExpressionProblem
from perdure.core.graph.model import Place, Problem


class Problems:
    """Places in the source of one function, what stands there, and what to write instead."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: dict[Place, Problem] = {}

    def add(self, at: ast.AST | ExpressionProblem, what: str, remedy: str) -> None:
        """`at` is a node of the source. Of one place the first problem is told."""
        line, column = getattr(at, "lineno", 0), getattr(at, "col_offset", 0)
        place = Place(self._file, line, column + 1)
        self._found.setdefault(place, Problem("", "", what, remedy, place))

    def __bool__(self) -> bool:
        return bool(self._found)

    def require_none(self, name: str) -> None:
        """Raise all that was found."""
        found = [self._found[place] for place in sorted(self._found)]
        if found:
            raise cannot_compile(name, found)


def cannot_compile(name: str, problems: Iterable[Problem]) -> CannotCompile:
    """The error that tells of all problems."""
    found = tuple(problems)
    lines = "\n  ".join(["change these lines", *map(str, found)])
    return CannotCompile(f"graph {name!r} can't be compiled", lines, found)
