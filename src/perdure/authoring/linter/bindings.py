"""The names that a piece of source binds, and the source of each value."""

import ast
from collections.abc import Iterator
from typing import TypeAlias

NamedFunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
FunctionNode: TypeAlias = NamedFunctionNode | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

SET_OPERATORS: TypeAlias = ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor

BindingSource: TypeAlias = str | ast.expr | None
"""Where a name gets its value: an imported name, an expression, or unknown (None)."""

_NAMING = {ast.arg: "arg", ast.MatchMapping: "rest"}
"""The field with the bound name, for nodes where it is not `name`."""

_BARE = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_LEAVES = {ast.Constant, *(kind for base in _BARE for kind in base.__subclasses__())}


def parts(node: ast.AST) -> list[ast.AST]:
    """The child nodes that may contain a name."""
    values = [getattr(node, field, None) for field in node._fields]
    nested = [part for value in values if type(value) is list for part in value]
    return [p for p in values + nested if isinstance(p, ast.AST) and type(p) not in _LEAVES]


def bindings(*nodes: ast.AST) -> Iterator[tuple[str, BindingSource]]:
    """Each name that `nodes` bind in their own scope, with its source."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                yield node.id, None
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value if len(node.targets) == 1 else None
            todo += [*node.targets[1:], node.value]
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, _assigned(node)
            todo += [] if node.value is None else [node.value]
        elif isinstance(node, Comprehension):
            todo += [n.target for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
        else:
            name = getattr(node, _NAMING.get(type(node), "name"), None)
            if isinstance(name, str):
                yield name, None
            if not isinstance(node, FunctionNode | ast.ClassDef):
                todo += parts(node)
            else:
                yield from ((name, None) for name in _rebound(node))


def _assigned(node: ast.AnnAssign | ast.AugAssign) -> BindingSource:
    """The value of an annotated or augmented assignment: `x |= y` keeps `x` a set if `y` is one."""
    is_plain = isinstance(node, ast.AnnAssign) or isinstance(node.op, SET_OPERATORS)
    return node.value if is_plain else None


def _rebound(node: ast.AST) -> Iterator[str]:
    """The names of outer scopes that `node` may rebind."""
    for part in ast.walk(node):
        if isinstance(part, ast.Nonlocal):
            yield from part.names


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    origin = ""
    if isinstance(node, ast.ImportFrom):
        origin = "." * node.level + (f"{node.module}." if node.module else "")
    for alias in node.names:
        top = alias.name.partition(".")[0]
        yield alias.asname or top, origin + (alias.name if alias.asname else top)
