"""Reads one function, and tells what it must not do as a workflow."""

import ast
import builtins
import os.path
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import NamedTuple, cast

from perdure.authoring.linter.bindings import (
    Comprehension,
    Definition,
    NamedDefinition,
    Origin,
    bindings,
    parts,
)
from perdure.authoring.linter.rules import (
    PATH,
    READS,
    SORTED,
    TASK,
    has_enough_arguments,
    instead_of,
)
from perdure.authoring.linter.sets import (
    A_SET,
    ITERATION,
    ORDERED,
    POP,
    Orders,
    combines_sets,
    is_set,
    makes_set,
)
from perdure.authoring.linter.source import definition_of, plain
from perdure.authoring.linter.things import Thing, attribute_of, imported, thing_of


class Finding(NamedTuple):
    """`what` is done at a line of `file`, which is a path as Python knows it; use `instead`."""

    file: str
    line: int
    what: str
    instead: str

    def __str__(self) -> str:
        call = "" if self.what in READS or self.what == ITERATION else "()"
        place = f"{os.path.basename(self.file)}:{self.line}"
        return f"{place}: {self.what}{call} in a workflow: use {self.instead}"


class Scan:
    """Reads one function. `called` are functions of its module that it calls."""

    def __init__(self, function: FunctionType) -> None:
        self.findings: list[Finding] = []
        self.called: list[tuple[FunctionType, Definition | None]] = []
        self._function = function
        cells = function.__closure__ or ()
        self._cells = dict(zip(function.__code__.co_freevars, cells, strict=True))
        self._scopes: list[dict[str, Thing | None]] = []
        self._orders = Orders()

    def enter(self, node: Definition) -> None:
        """Read a body. Annotations are not run, and defaults and decorators were before."""
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        self._orders.enter(body)
        with self._scope(node.args, *body):
            for statement in body:
                self.visit(statement)

    @contextmanager
    def _scope(self, *binders: ast.AST) -> Iterator[None]:
        """A name that a scope assigns is its own there, be it declared `global` or `nonlocal`."""
        origins: dict[str, list[Origin]] = {}
        for name, origin in bindings(*binders):
            origins.setdefault(name, []).append(origin)
        names: dict[str, Thing | None] = dict.fromkeys(origins)
        self._scopes.append(names)
        for name, of_name in reversed(origins.items()):
            names[name] = self._bound(of_name)
        yield
        self._scopes.pop()

    def _bound(self, origins: list[Origin]) -> Thing | None:
        """Imports that exclude each other are of a kind, and sets are; else what is assigned twice is not known."""
        if all(isinstance(origin, str) for origin in origins):
            return imported(str(origins[-1]))
        found = [self._resolve(o) if isinstance(o, ast.expr) else None for o in origins]
        return found[0] if len(found) == 1 or all(map(is_set, found)) else None

    def _lookup(self, name: str) -> Thing | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        if name in self._cells:
            try:
                return thing_of(self._cells[name].cell_contents)
            except ValueError:  # not assigned yet
                return None
        for namespace in (self._function.__globals__, vars(builtins)):
            if name in namespace:
                return thing_of(namespace[name])
        below = definition_of(self._function, name)
        return None if below is None else Thing(name, below)

    def _resolve(self, node: ast.AST) -> Thing | None:
        """What an expression stands for, as far as it is made of names; of values, paths and sets only."""
        if isinstance(node, ast.Name):
            return self._lookup(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._resolve(node.value)
            is_directory = owner == Thing(PATH) and node.attr == "parent"
            return owner if owner is None or is_directory else attribute_of(owner, node.attr)
        if self._gives_set(node):
            return A_SET
        if isinstance(node, ast.Call):
            maker = self._resolve(node.func)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            maker = self._resolve(node.left)
        else:
            return None
        is_path = maker is not None and f"{maker.name}.".startswith(f"{PATH}.")
        return Thing(PATH) if is_path else None

    def _gives_set(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return makes_set(self._resolve(node.func))
        if isinstance(node, ast.BinOp) and combines_sets(node.op):
            return is_set(self._resolve(node.left)) and is_set(self._resolve(node.right))
        return isinstance(node, ast.Set | ast.SetComp)

    def _report(self, node: ast.expr, what: str, instead: str) -> None:
        is_chain = isinstance(node, ast.Attribute)  # over several lines, it ends with the name
        line = (node.end_lineno or node.lineno) if is_chain else node.lineno
        file = self._function.__code__.co_filename
        self.findings.append(Finding(file, line, what.removeprefix("builtins."), instead))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            called = self._resolve(node.func)
            self._judge(node, called)
            self._require_order(node, called)
        elif isinstance(node, ast.Name | ast.Attribute):
            self._read(node)
        if isinstance(node, Definition):
            self._visit_definition(node)
        elif isinstance(node, Comprehension):
            with self._scope(*(generator.target for generator in node.generators)):
                self._require_order(node)
                self._visit_parts(node)
        else:
            if type(node) in ORDERED:
                self._require_order(node)
            self._visit_parts(node)

    def _require_order(self, node: ast.AST, called: Thing | None = None) -> None:
        for iterable in self._orders.iterated(node, called):
            if is_set(self._resolve(iterable)):
                self._report(iterable, ITERATION, SORTED)

    def _visit_parts(self, node: ast.AST) -> None:
        """All that is run: the annotation of a local variable is not, nor is `type X = ...`."""
        for part in () if type(node).__name__ == "TypeAlias" else parts(node):
            if not (isinstance(node, ast.AnnAssign) and part is node.annotation):
                self.visit(part)

    def _visit_definition(self, node: Definition) -> None:
        """Its body as well, whether it is called or not, unless Perdure makes a task of it."""
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        for outside in (*decorators, *node.args.defaults, *node.args.kw_defaults):
            if outside is not None:
                self.visit(outside)
        makers = (self._resolve(d.func if isinstance(d, ast.Call) else d) for d in decorators)
        if not any(maker is not None and maker.name.startswith("perdure.") for maker in makers):
            self.enter(node)

    def _read(self, node: ast.Name | ast.Attribute) -> None:
        thing = self._resolve(node)
        if thing is not None and thing.name in READS:
            self._report(node, thing.name, READS[thing.name])

    def _judge(self, node: ast.Call, thing: Thing | None) -> None:
        if thing is not None and not self._is_followed(thing.target):
            kind = thing.target if issubclass(type(thing.target), type) else object
            if thing.name == POP:
                self._report(node.func, thing.name, SORTED)
            verb = None if issubclass(cast(type, kind), BaseException) else instead_of(thing.name)
            if verb is not None and not has_enough_arguments(node, thing.name):
                self._report(node.func, thing.name, verb)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "run_in_executor":
            self._report(node.func, node.func.attr, TASK)

    def _is_followed(self, target: object) -> bool:
        """Functions of the module are read instead of judged by name."""
        if isinstance(target, NamedDefinition):
            self.called.append((self._function, target))
            return True
        function = plain(target) if type(target) is FunctionType else None
        if function is None or function.__globals__ is not self._function.__globals__:
            return False
        self.called.append((function, definition_of(function)))
        return True
