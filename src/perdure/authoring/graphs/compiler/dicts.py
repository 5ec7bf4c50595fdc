"""Refuses `d.x` where `d` is certainly a dict: graphs read the key `x`, but Python raises an error."""

import ast
from collections.abc import Iterator

from perdure.authoring.graphs.compiler.names import parameters_of
from perdure.authoring.graphs.compiler.problems import Problems


def refuse_fields_of_dicts(tree: ast.AsyncFunctionDef, problems: Problems) -> None:
    """Add a problem for each attribute that is read from an evident dict."""
    bound = list(_bindings(tree))
    known = {name for name, _ in bound} - {name for name, is_dict in bound if not is_dict}
    methods = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Store):
            continue
        owner = node.value
        is_known = isinstance(owner, ast.Name) and owner.id in known
        if node not in methods and (is_known or _is_dict(owner)):
            what = f"`{ast.unparse(node)}`, a field of a dict"
            problems.add(node, what, f"write `{ast.unparse(owner)}[{node.attr!r}]`")


def _bindings(tree: ast.AsyncFunctionDef) -> Iterator[tuple[str, bool]]:
    """Each binding of a name, and whether it binds a dict."""
    dicts = set(_bound_to_dicts(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node in dicts
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node in dicts
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            yield node.name, False


def _bound_to_dicts(tree: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    for parameter in parameters_of(tree.args):
        if parameter.annotation is not None and _names_dict(parameter.annotation):
            yield parameter
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_dict(node.value):
            yield from node.targets
        elif isinstance(node, ast.AnnAssign) and (node.value is None or _is_dict(node.value)):
            yield node.target


def _is_dict(node: ast.expr) -> bool:
    return isinstance(node, ast.Dict | ast.DictComp)


def _names_dict(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).strip("'\"").partition("[")[0] == "dict"
