"""What the parts of the compiler share while they compile one function."""

import ast
from dataclasses import dataclass, field

from perdure.authoring.graphs.compiler.drawing import Drawing, Stub
from perdure.authoring.graphs.compiler.expressions import Expressions
from perdure.authoring.graphs.compiler.names import UNKNOWN, Names
from perdure.authoring.graphs.compiler.problems import Problems


@dataclass
class Loop:
    """A loop around the statement at hand: the hook that it returns to, and the ways out by `break`."""

    hook: str
    breaks: list[Stub] = field(default_factory=list)


@dataclass
class Unit:
    """One function. `loops` and `caught` are those around the statement at hand, the innermost last; `caught` are the
    variables of errors that are being handled."""

    drawing: Drawing
    names: Names
    problems: Problems
    expressions: Expressions
    mutable: frozenset[str]
    """Variables that are lists or dicts somewhere: in Python `+=` would change them for all who have them."""
    loops: list[Loop] = field(default_factory=list)
    caught: list[str] = field(default_factory=list)

    def keep(self, value: ast.expr, wanted: str) -> ast.Name:
        """The value in a variable of its own, as it is now."""
        kept = self.names.temporary(wanted)
        self.assign({kept.id: value}, wanted)
        return kept

    def unknown(self, place: ast.AST) -> ast.expr:
        """Stands for the value of what was refused: it is there, and nothing is known of it."""
        kept = self.names.temporary("unknown")
        self.drawing.assign({kept.id: UNKNOWN}, "unknown", can_fail=False)
        return ast.copy_location(kept, place)

    def forget(self, *refused: ast.stmt) -> None:
        """Nothing is known any more of the variables that these statements set."""
        names = {
            self.names.spelled(node.id): UNKNOWN
            for statement in refused
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        if names and self.drawing.open:
            self.drawing.assign(names, "unknown", can_fail=False)

    def assign(self, values: dict[str, ast.expr], wanted: str) -> None:
        """Set variables of the graph."""
        maps = {name: self.expressions.text(value) for name, value in values.items()}
        can_fail = not all(isinstance(value, ast.Constant) for value in values.values())
        self.drawing.assign(maps, wanted, can_fail=can_fail)

    def branch(self, test: ast.expr) -> tuple[list[Stub], list[Stub]]:
        return self.drawing.branch(self.expressions.text(test))


def is_timeless(value: ast.expr) -> bool:
    """Whether it is the same when it is evaluated later: nothing in it fails, or changes until then."""
    return isinstance(value, ast.Constant | ast.Name)
