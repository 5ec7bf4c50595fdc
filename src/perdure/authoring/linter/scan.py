"""Scans one function for code that must not run in a workflow."""

import ast
import builtins
import os.path
from collections.abc import Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import NamedTuple, TypeAlias, cast

from perdure.authoring.linter.bindings import (
    BindingSource,
    Comprehension,
    FunctionNode,
    NamedFunctionNode,
    bindings,
    parts,
)
from perdure.authoring.linter.rules import (
    CHANGING,
    COUNTING,
    CUMULATIVE,
    KEPT,
    PATH,
    READS,
    SORTED,
    TASK,
    has_enough_arguments,
    may_be_referred_to,
    replacement_for,
)
from perdure.authoring.linter.sets import (
    A_SET,
    ITERATION,
    ORDERED,
    POP,
    SetIteration,
    combines_sets,
    is_set,
    makes_set,
)
from perdure.authoring.linter.source import definition_of, is_user_code, underlying_function
from perdure.authoring.linter.symbols import (
    ABSENT,
    Symbol,
    attribute_of,
    imported,
    item_of,
    object_of,
    symbol_of,
)


class LintFinding(NamedTuple):
    """A forbidden operation `what` at a line of `file`, and what to use `instead`."""

    file: str
    line: int
    what: str
    instead: str

    def __str__(self) -> str:
        is_call = self.what not in READS and self.what not in (ITERATION, COUNTING, CHANGING)
        call = "()" if is_call else ""
        place = f"{os.path.basename(self.file)}:{self.line}"
        return f"{place}: {self.what}{call} in a workflow: use {self.instead}"


CalledFunction: TypeAlias = tuple[FunctionType, FunctionNode | None, type | None]
"""A called function, its syntax tree, and its class if it is a method."""

_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, MethodDescriptorType, ast.AST)

_IMPORTERS = ("builtins.__import__", "importlib.import_module")
_LOOKUPS = (*_IMPORTERS, "builtins.getattr", "builtins.vars", "functools.partial")

_DEEPEST = 3
"""How many calls deep the scan follows to learn whether a function returns a set."""


class Scan:
    """Scans one function. `called` collects the user's functions that it calls or passes; `owner` is its class."""

    def __init__(self, function: FunctionType, owner: type | None = None, depth: int = 0) -> None:
        self.findings: list[LintFinding] = []
        self.called: list[CalledFunction] = []
        self._owner = owner
        self._depth = depth
        self._function = function
        cells = function.__closure__ or ()
        self._cells = dict(zip(function.__code__.co_freevars, cells, strict=True))
        self._scopes: list[dict[str, Symbol | None]] = []
        self._orders = SetIteration()
        self._exempt: set[ast.AST] = set()
        """Expressions that may name any function: arguments of Perdure's own functions (`task(fn)`),
        and owners of attributes (`fn.__name__`)."""
        self._globals: set[str] = set()
        """Names that the function declares `global`."""

    def enter(self, node: FunctionNode) -> None:
        """Scan a body. Annotations never run; defaults and decorators ran before."""
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        self._orders.enter(body)
        outside, self._globals = self._globals, set()
        with self._scope(node.args, *body):
            self._bind_owner(node)
            for statement in body:
                self.visit(statement)
        self._globals = outside

    def _bind_owner(self, node: FunctionNode) -> None:
        """Bind the first parameter of a method to an instance of its class, or to the class."""
        if self._owner is None or len(self._scopes) > 1 or not node.args.args:
            return
        first = node.args.args[0].arg
        found = vars(self._owner).get(getattr(node, "name", ""))
        if not isinstance(found, staticmethod):
            is_class = isinstance(found, classmethod)
            self._scopes[0][first] = symbol_of(self._owner) if is_class else object_of(self._owner)

    def returns_set(self, node: FunctionNode) -> bool:
        """Whether every returned value is a set, or the annotation says so."""
        annotation = None if isinstance(node, ast.Lambda) else node.returns
        annotation = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        if isinstance(annotation, ast.Name) and annotation.id in ("set", "frozenset"):
            return True
        returned = [node.body] if isinstance(node, ast.Lambda) else list(_returned(node))
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        with self._scope(node.args, *body):
            self._bind_owner(node)
            return bool(returned) and all(is_set(self._resolve(each)) for each in returned)

    @contextmanager
    def _scope(self, *binders: ast.AST) -> Iterator[None]:
        """Names that the scope assigns are its own, even if declared `global` or `nonlocal`."""
        origins: dict[str, list[BindingSource]] = {}
        for name, origin in bindings(*binders):
            origins.setdefault(name, []).append(origin)
        names: dict[str, Symbol | None] = dict.fromkeys(origins)
        self._scopes.append(names)
        for name, of_name in reversed(origins.items()):
            names[name] = self._bound(of_name)
        yield
        self._scopes.pop()

    def _bound(self, origins: list[BindingSource]) -> Symbol | None:
        """The symbol of a name. With several bindings it is known only if all are imports, or all are sets."""
        if all(isinstance(origin, str) for origin in origins):
            return imported(str(origins[-1]))
        found = [self._resolve(o) if isinstance(o, ast.expr) else None for o in origins]
        return found[0] if len(found) == 1 or all(map(is_set, found)) else None

    def _lookup(self, name: str) -> Symbol | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        if name in self._cells:
            try:
                return symbol_of(self._cells[name].cell_contents)._replace(instance=ABSENT)
            except ValueError:  # not assigned yet
                return None
        for namespace in (self._function.__globals__, vars(builtins)):
            if name in namespace:
                return symbol_of(namespace[name])
        below = definition_of(self._function, name)
        return None if below is None else Symbol(name, below)

    def _resolve(self, node: ast.AST) -> Symbol | None:
        """The symbol of an expression. Of values, only paths, sets and objects of user classes are known."""
        if isinstance(node, ast.Name):
            return self._lookup(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._resolve(node.value)
            is_directory = owner == Symbol(PATH) and node.attr == "parent"
            return owner if owner is None or is_directory else attribute_of(owner, node.attr)
        if self._gives_set(node):
            return A_SET
        if isinstance(node, ast.NamedExpr):
            return self._resolve(node.value)
        if isinstance(node, ast.Subscript):
            items, key = self._resolve(node.value), _text(node.slice)
            return None if items is None or key is None else item_of(items, key)
        if isinstance(node, ast.Call):
            return self._result_of(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return _path_of(self._resolve(node.left))
        return None

    def _result_of(self, node: ast.Call) -> Symbol | None:
        """The result of a call: a set, function, module, path, or an instance of a user's class."""
        maker = self._resolve(node.func)
        if maker is None:
            return None
        if makes_set(maker) or self._returns_set(maker):
            return A_SET
        if maker.name == "builtins.globals":
            return Symbol("builtins.dict", instance=self._function.__globals__)
        if maker.name in _LOOKUPS and node.args:
            return self._looked_up(maker.name, node.args)
        target = maker.target
        is_class = isinstance(target, type) and is_user_code(target)
        return object_of(cast(type, target)) if is_class else _path_of(maker)

    def _looked_up(self, name: str, args: list[ast.expr]) -> Symbol | None:
        """The result of a function of `_LOOKUPS` whose arguments name constants."""
        if name in _IMPORTERS:
            module = _text(args[0])
            top = None if module is None else module.partition(".")[0]
            wanted = top if name == "builtins.__import__" else module
            return None if wanted is None else imported(wanted)
        first = self._resolve(args[0])
        if first is None or name == "functools.partial":
            return first
        attribute = "__dict__" if name == "builtins.vars" else _text(args[1]) if args[1:] else None
        return None if attribute is None else attribute_of(first, attribute)

    def _gives_set(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Await):
            return is_set(self._resolve(node.value))
        if isinstance(node, ast.BinOp) and combines_sets(node.op):
            return is_set(self._resolve(node.left)) and is_set(self._resolve(node.right))
        return isinstance(node, ast.Set | ast.SetComp)

    def _returns_set(self, maker: Symbol | None) -> bool:
        """Whether the symbol is a user's function that returns a set."""
        called = None if maker is None or self._depth == _DEEPEST else self._followed(maker)
        function, definition, owner = called or (None, None, None)
        if function is None or definition is None:
            return False
        return Scan(function, owner, self._depth + 1).returns_set(definition)

    def _report(self, node: ast.expr, what: str, instead: str) -> None:
        is_chain = isinstance(node, ast.Attribute)  # the name is on its last line
        line = (node.end_lineno or node.lineno) if is_chain else node.lineno
        file = self._function.__code__.co_filename
        self.findings.append(LintFinding(file, line, what.removeprefix("builtins."), instead))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            called = self._resolve(node.func)
            self._judge(node, called)
            self._require_order(node, called)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            self._read(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            self._refer(node, self._resolve(node))
        elif isinstance(node, ast.Global):
            self._globals.update(node.names)
        elif isinstance(node, ast.AugAssign) and self._is_shared(node.target):
            self._report(node.target, COUNTING, KEPT)
        if isinstance(node, FunctionNode):
            self._visit_definition(node)
        elif isinstance(node, Comprehension):
            with self._scope(*(generator.target for generator in node.generators)):
                self._require_order(node)
                self._visit_parts(node)
        else:
            if type(node) in ORDERED:
                self._require_order(node)
            self._visit_parts(node)

    def _require_order(self, node: ast.AST, called: Symbol | None = None) -> None:
        for iterable in self._orders.iterated(node, called):
            if is_set(self._resolve(iterable)):
                self._report(iterable, ITERATION, SORTED)

    def _visit_parts(self, node: ast.AST) -> None:
        """Visit all parts that run. Annotations of local variables and `type X = ...` don't."""
        for part in () if type(node).__name__ == "TypeAlias" else parts(node):
            if not (isinstance(node, ast.AnnAssign) and part is node.annotation):
                self.visit(part)

    def _visit_definition(self, node: FunctionNode) -> None:
        """Visit a nested function with its body, unless a decorator of Perdure makes it a task."""
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        for outside in (*decorators, *node.args.defaults, *node.args.kw_defaults):
            if outside is not None:
                self.visit(outside)
        makers = (self._resolve(d.func if isinstance(d, ast.Call) else d) for d in decorators)
        if not any(maker is not None and maker.name.startswith("perdure.") for maker in makers):
            self.enter(node)

    def _read(self, node: ast.Name | ast.Attribute) -> None:
        symbol = self._resolve(node)
        if symbol is not None and symbol.name in READS:
            self._report(node, symbol.name, READS[symbol.name])
        elif symbol is not None and isinstance(symbol.target, property):
            called = self._followed(Symbol(symbol.name, symbol.target.fget, None, symbol.owner))
            self.called += [] if called is None else [called]
        elif isinstance(node.ctx, ast.Load):
            self._refer(node, symbol)

    def _refer(self, node: ast.expr, symbol: Symbol | None) -> None:
        """Treat a function that is named, stored or passed as called, unless Perdure receives it."""
        if isinstance(node, ast.Attribute):
            self._exempt.add(node.value)
        if symbol is None or not isinstance(symbol.target, _FUNCTIONS) or node in self._exempt:
            return
        called = self._followed(symbol)
        verb = replacement_for(symbol.name)
        if called is not None:
            self.called.append(called)
        elif verb is not None and not may_be_referred_to(symbol.name):
            self._report(node, symbol.name, verb)

    def _is_shared(self, target: ast.expr) -> bool:
        """Whether `target` is a global, or an item or attribute of a module-level object.

        A replay, or another process, begins with another value. Plain assignments may be caches.
        """
        if isinstance(target, ast.Name):
            return target.id in self._globals
        if not isinstance(target, ast.Subscript | ast.Attribute):
            return False
        owner = self._resolve(target.value)
        is_module = owner is not None and isinstance(owner.target, ModuleType)
        return owner is not None and (owner.instance is not ABSENT or is_module)

    def _judge_state(self, node: ast.Call, name: str) -> None:
        """Report changes to module-level objects whose effect adds up from one execution to the next."""
        if name in CUMULATIVE and isinstance(node.func, ast.Attribute):
            owner = self._resolve(node.func.value)
            if owner is not None and owner.instance is not ABSENT:
                self._report(node.func, CHANGING, KEPT)
        elif name == "builtins.next" and node.args:
            if self._resolve(node.args[0]) == Symbol("itertools.count"):
                self._report(node.func, COUNTING, KEPT)

    def _judge(self, node: ast.Call, symbol: Symbol | None) -> None:
        if symbol is not None:
            self._judge_state(node, symbol.name)
            if symbol.name == "builtins.getattr":
                self._refer(node, self._resolve(node))
            elif symbol.name.startswith("perdure."):
                self._exempt.update(node.args, (each.value for each in node.keywords))
        if symbol is not None and not self._is_followed(symbol):
            kind = symbol.target if issubclass(type(symbol.target), type) else object
            if symbol.name == POP:
                self._report(node.func, symbol.name, SORTED)
            verb = (
                None
                if issubclass(cast(type, kind), BaseException)
                else replacement_for(symbol.name)
            )
            if verb is not None and not has_enough_arguments(node, symbol.name):
                self._report(node.func, symbol.name, verb)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "run_in_executor":
            self._report(node.func, node.func.attr, TASK)

    def _is_followed(self, symbol: Symbol) -> bool:
        """Follow a user's function, constructor or callable object, instead of judging it by name."""
        target = symbol.target
        if isinstance(target, type) and is_user_code(target):
            makers = (
                attribute_of(object_of(target), name) for name in ("__init__", "__post_init__")
            )
            self.called += [each for each in map(self._followed, makers) if each is not None]
            return not issubclass(target, BaseException) and replacement_for(symbol.name) is None
        called = self._followed(symbol)
        if called is None and symbol.kind is not None and target is ABSENT:
            called = self._followed(attribute_of(object_of(symbol.kind), "__call__"))
        if called is None:
            return False
        self.called.append(called)
        return True

    def _followed(self, symbol: Symbol) -> CalledFunction | None:
        """The user's function that a call of `symbol` runs."""
        target = symbol.target
        if isinstance(target, NamedFunctionNode):
            return self._function, target, None
        function = (
            underlying_function(target) if type(target) in (FunctionType, MethodType) else None
        )
        if function is None:
            return None
        if function.__globals__ is not self._function.__globals__ and not is_user_code(function):
            return None
        owner = symbol.owner
        if type(target) is MethodType:
            bound = target.__self__
            owner = bound if isinstance(bound, type) else type(bound)
        return function, definition_of(function), owner


def _path_of(maker: Symbol | None) -> Symbol | None:
    """The path that results from calling or dividing a path."""
    is_path = maker is not None and f"{maker.name}.".startswith(f"{PATH}.")
    return Symbol(PATH) if is_path else None


def _text(node: ast.AST) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return str(cast(ast.Constant, node).value) if is_text else None


def _returned(node: NamedFunctionNode) -> Iterator[ast.expr]:
    """The returned expressions of a function, without nested functions."""
    todo: list[ast.AST] = [*node.body]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Return) and part.value is not None:
            yield part.value
        elif not isinstance(part, FunctionNode | ast.ClassDef):
            todo += parts(part)
