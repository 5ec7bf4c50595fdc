"""The state that the parts of the compiler share while compiling one function."""

import ast
from dataclasses import dataclass, field

from perdure.authoring.graphs.compiler.expressions import ExpressionCompiler
from perdure.authoring.graphs.compiler.graph_writer import GraphWriter, OpenEnd
from perdure.authoring.graphs.compiler.names import UNKNOWN, Names
from perdure.authoring.graphs.compiler.problems import Problems


@dataclass
class EnclosingLoop:
    """A loop around the current statement: its hook, and the open edges of `break`."""

    hook: str
    breaks: list[OpenEnd] = field(default_factory=list)


@dataclass
class Unit:
    """The compilation of one function. `loops` are the loops around the current statement, `caught` the variables of
    the errors being handled; the innermost is last."""

    writer: GraphWriter
    names: Names
    problems: Problems
    expressions: ExpressionCompiler
    mutable: frozenset[str]
    """Variables that may hold a list or dict: in Python `+=` changes these in place, also for other references."""
    own: dict[str, type] = field(default_factory=dict)
    """Variables whose lists and dicts no other reference sees, with `list` or `dict`: they may be changed."""
    loops: list[EnclosingLoop] = field(default_factory=list)
    caught: list[str] = field(default_factory=list)

    def keep(self, value: ast.expr, wanted: str) -> ast.Name:
        """Store the current value in a new variable."""
        kept = self.names.temporary(wanted)
        self.assign({kept.id: value}, wanted)
        return kept

    def unknown(self, place: ast.AST) -> ast.expr:
        """A variable that stands for the value of a refused expression."""
        kept = self.names.temporary("unknown")
        self.writer.assign({kept.id: UNKNOWN}, "unknown", can_fail=False)
        return ast.copy_location(kept, place)

    def forget(self, *refused: ast.stmt) -> None:
        """Mark the variables that refused statements set as unknown."""
        names = {
            self.names.graph_name(node.id): UNKNOWN
            for statement in refused
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        if names and self.writer.open:
            self.writer.assign(names, "unknown", can_fail=False)

    def assign(self, values: dict[str, ast.expr], wanted: str) -> None:
        """Set variables of the graph."""
        maps = {name: self.expressions.text(value) for name, value in values.items()}
        can_fail = not all(isinstance(value, ast.Constant) for value in values.values())
        self.writer.assign(maps, wanted, can_fail=can_fail)

    def branch(self, test: ast.expr) -> tuple[list[OpenEnd], list[OpenEnd]]:
        return self.writer.branch(self.expressions.text(test))


def is_stable(value: ast.expr) -> bool:
    """Whether evaluating the expression later gives the same value: it can't fail or change."""
    return isinstance(value, ast.Constant | ast.Name)
