"""Python source as the reference shows it: signatures, attributes and the text below each.

Everything is read from the syntax tree and not from the live objects, whose printed form differs between versions
of Python.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from textwrap import indent
from types import FunctionType, ModuleType

Function = ast.FunctionDef | ast.AsyncFunctionDef

LINE = 88


@dataclass(frozen=True)
class Attribute:
    """A field of a class, or a constant of a module."""

    name: str
    type: str
    default: str
    text: str


@cache
def tree_of(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def class_of(kind: type) -> ast.ClassDef:
    """The statement that defines a class."""
    for node in tree_of(sys.modules[kind.__module__]).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            return node
    raise LookupError(f"{kind!r} is not defined at the top of its module")


def forms_of(function: FunctionType) -> list[Function]:
    """The statements that define a function: its overloads, if it has any, and the function itself last."""
    found: list[Function] = [
        node
        for node in tree_of(sys.modules[function.__module__]).body
        if isinstance(node, Function) and node.name == function.__name__
    ]
    if not found:
        raise LookupError(f"{function!r} is not defined at the top of its module")
    return found


def text_of(node: ast.ClassDef | Function | ast.Module) -> str:
    return ast.get_docstring(node) or ""


def attributes(body: list[ast.stmt]) -> Iterator[Attribute]:
    """The annotated names of a body, each with the string below it."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        target, kind = _target(node)
        if target is None or target.startswith("_"):
            continue
        value = getattr(node, "value", None)
        default = "" if value is None else ast.unparse(value)
        yield Attribute(target, kind, default, _string(after))


def _target(node: ast.stmt) -> tuple[str | None, str]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id, written(node.annotation)
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        if isinstance(node.targets[0], ast.Name):
            return node.targets[0].id, ""
    return None, ""


def written(annotation: ast.expr) -> str:
    """An annotation as source. A name that is quoted because it is defined later loses its quotes."""
    return ast.unparse(_Unquoted().visit(annotation))


class _Unquoted(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """The texts of a `Literal` are values, and stay."""
        return node if ast.unparse(node.value) == "Literal" else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Name(node.value) if isinstance(node.value, str) else node


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        if isinstance(node.value.value, str):
            return inspect.cleandoc(node.value.value)
    return ""


def signature(node: Function, name: str, *, drop_first: bool = False) -> str:
    """The head of a function, over several lines if it is long. Decorators and the body are left out."""
    parts = _parameters(node.args)
    if drop_first:
        parts = parts[1:]
        if parts[:1] == ["/"]:
            parts = parts[1:]
    head = f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}def {name}"
    tail = "" if node.returns is None else f" -> {written(node.returns)}"
    line = f"{head}({', '.join(parts)}){tail}"
    if len(line) <= LINE:
        return line
    inside = indent(",\n".join(parts), "    ")
    return f"{head}(\n{inside},\n){tail}"


def _parameters(given: ast.arguments) -> list[str]:
    """Each parameter as it is written, with the marks between the kinds."""
    positional = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults]
    parts = [_parameter(each, default) for each, default in zip(positional, defaults, strict=True)]
    if given.posonlyargs:
        parts.insert(len(given.posonlyargs), "/")
    if given.vararg is not None:
        parts.append(f"*{_parameter(given.vararg, None)}")
    elif given.kwonlyargs:
        parts.append("*")
    keywords = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    parts += [_parameter(each, default) for each, default in keywords]
    if given.kwarg is not None:
        parts.append(f"**{_parameter(given.kwarg, None)}")
    return parts


def _parameter(given: ast.arg, default: ast.expr | None) -> str:
    kind = "" if given.annotation is None else f": {written(given.annotation)}"
    if default is None:
        return f"{given.arg}{kind}"
    equals = " = " if kind else "="
    return f"{given.arg}{kind}{equals}{ast.unparse(default)}"
