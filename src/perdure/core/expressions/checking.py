"""Checks which syntax trees are expressions of graphs. Everything else is refused, with a remedy."""

import ast
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from perdure.core.errors import ExpressionProblem
from perdure.core.expressions.functions import FUNCTIONS, Function
from perdure.core.expressions.methods import METHOD_KEYWORDS, METHOD_NAMES
from perdure.core.expressions.operators import BINARY, COMPARISONS, UNARY
from perdure.core.limits import MAX_EXPRESSION_BITS, MAX_EXPRESSION_DEPTH, MAX_EXPRESSION_NODES

Bound = Mapping[str, bool]
"""Variables of the loops around a part, and whether they have a value there yet."""

_REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Await: ("`await`", "call the task in a node of its own, and use its result"),
    ast.GeneratorExp: (
        "a generator that is not consumed at once",
        "write a list: [... for ... in ...]",
    ),
    ast.Lambda: (
        "a `lambda`",
        "write a comprehension; only `key=lambda item: ...` of sorted, min and max is one",
    ),
    ast.NamedExpr: ("`:=`", "give the value a name in a step before"),
    ast.Set: ("a set", "write a list: [...]"),
    ast.SetComp: ("a set", "write a list: [... for ... in ...]"),
    ast.Starred: ("`*`", "unpack into a list only: [*first, *second]"),
    ast.Yield: ("`yield`", "return the values as a list"),
    ast.YieldFrom: ("`yield`", "return the values as a list"),
}

_REFUSED_OPERATORS: dict[type[ast.AST], str] = {
    ast.BitAnd: "`&`: write `and`",
    ast.BitOr: "`|`: write `or`; merge dicts with {**first, **second}",
    ast.BitXor: "`^`: write `!=`",
    ast.Invert: "`~`: write `not`",
    ast.LShift: "`<<`: write `* 2 **`",
    ast.MatMult: "`@`: compute it in a task",
    ast.RShift: "`>>`: write `// 2 **`",
}


def check_expression(tree: ast.expr) -> frozenset[str]:
    """Returns the names that the expression reads; raises `ExpressionProblem`."""
    _require_small(tree)
    checker = _Checker()
    checker.visit(tree, {})
    return frozenset(checker.names)


def problem(node: ast.AST, what: str, remedy: str) -> NoReturn:
    raise ExpressionProblem(
        what, remedy, getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    )


def _require_small(tree: ast.expr) -> None:
    """Without recursion: a given tree may have any depth."""
    count = 0
    waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        part = isinstance(node, ast.expr)
        count += part
        if part and depth > MAX_EXPRESSION_DEPTH:
            problem(tree, "the expression nests too deep", "write it in several steps")
        if count > MAX_EXPRESSION_NODES:
            problem(
                tree,
                f"the expression has more than {MAX_EXPRESSION_NODES:,} parts",
                "compute it in a task",
            )
        waiting.extend((child, depth + part) for child in ast.iter_child_nodes(node))


class _Checker:
    """Visits a tree once. `names` collects the names that are read from the scope."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._rules: dict[type[ast.expr], Callable[[Any, Bound], None]] = {
            ast.Attribute: self._attribute,
            ast.BinOp: self._binary,
            ast.BoolOp: self._parts,
            ast.Call: self._call,
            ast.Compare: self._comparison,
            ast.Constant: self._constant,
            ast.Dict: self._parts,
            ast.DictComp: self._comprehension,
            ast.FormattedValue: self._parts,
            ast.IfExp: self._parts,
            ast.JoinedStr: self._parts,
            ast.List: self._list,
            ast.ListComp: self._comprehension,
            ast.Name: self._name,
            ast.Slice: self._parts,
            ast.Subscript: self._parts,
            ast.Tuple: self._list,
            ast.UnaryOp: self._unary,
        }

    def visit(self, node: ast.expr, bound: Bound) -> None:
        rule = self._rules.get(type(node))
        if rule is None:
            what, remedy = _REFUSED.get(
                type(node), (f"`{type(node).__name__}`", "compute it in a task")
            )
            problem(node, f"{what} can't be used in an expression", remedy)
        rule(node, bound)

    def _parts(self, node: ast.expr, bound: Bound) -> None:
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                self.visit(part, bound)

    def _list(self, node: ast.List | ast.Tuple, bound: Bound) -> None:
        for item in node.elts:
            if isinstance(item, ast.Slice):
                problem(node, "a slice stands alone in its brackets", "write a[1:2][3]")
            self.visit(item.value if isinstance(item, ast.Starred) else item, bound)

    def _constant(self, node: ast.Constant, _bound: Bound) -> None:
        value = node.value
        if isinstance(value, int) and value.bit_length() > MAX_EXPRESSION_BITS:
            problem(
                node,
                f"the integer has {value.bit_length():,} bits",
                f"use at most {MAX_EXPRESSION_BITS:,}",
            )
        if value is not None and not isinstance(value, bool | int | float | str):
            problem(
                node,
                f"`{ast.unparse(node)[:40]}` is not plain data",
                "use text, numbers, True, False or None",
            )

    def _name(self, node: ast.Name, bound: Bound) -> None:
        _require_public(node, node.id)
        if node.id in FUNCTIONS:
            problem(
                node, f"the function {node.id!r} is not a value", "call it, or rename the value"
            )
        if node.id not in bound:
            self.names.add(node.id)
        elif not bound[node.id]:
            problem(node, f"{node.id!r} is read before its `for`", "choose another name for one")

    def _attribute(self, node: ast.Attribute, bound: Bound) -> None:
        _require_public(node, node.attr)
        self.visit(node.value, bound)

    def _unary(self, node: ast.UnaryOp, bound: Bound) -> None:
        _require_operator(node, node.op, UNARY)
        self.visit(node.operand, bound)

    def _binary(self, node: ast.BinOp, bound: Bound) -> None:
        _require_operator(node, node.op, BINARY)
        if isinstance(node.op, ast.Mod) and _is_text(node.left):
            problem(node, "`%` does not format text here", 'write an f-string: f"{value}"')
        self.visit(node.left, bound)
        self.visit(node.right, bound)

    def _comparison(self, node: ast.Compare, bound: Bound) -> None:
        for op, side in zip(node.ops, node.comparators, strict=True):
            _require_operator(node, op, COMPARISONS)
            if isinstance(op, ast.Is | ast.IsNot) and not _is_singleton(side):
                problem(node, "`is` compares with None, True and False only", "write `==` or `!=`")
        self._parts(node, bound)

    def _call(self, node: ast.Call, bound: Bound) -> None:
        if isinstance(node.func, ast.Name):
            self._function_call(node, node.func, bound)
        elif isinstance(node.func, ast.Attribute):
            self._method_call(node, node.func, bound)
        else:
            problem(node, "the value of an expression can't be called", _known_functions())

    def _function_call(self, node: ast.Call, named: ast.Name, bound: Bound) -> None:
        function = FUNCTIONS.get(named.id)
        if function is None:
            _require_public(named, named.id)
            problem(
                named,
                f"there is no function {named.id!r} in expressions",
                _meant(named.id, FUNCTIONS) or _known_functions(),
            )
        _require_arguments(node, named.id, function)
        for argument in node.args:
            self._argument(argument, bound, generator=function.consumes)
        for keyword in node.keywords:
            if keyword.arg == "key" and isinstance(keyword.value, ast.Lambda):
                self._key(keyword.value, bound)
            elif keyword.arg == "key":
                problem(keyword.value, "a key must be written here", "write key=lambda item: ...")
            else:
                self._argument(keyword.value, bound, generator=False)

    def _method_call(self, node: ast.Call, named: ast.Attribute, bound: Bound) -> None:
        _require_public(named, named.attr)
        if named.attr not in METHOD_NAMES:
            remedy = _meant(named.attr, METHOD_NAMES)
            if named.attr == "format":
                remedy = 'write an f-string: f"{value}"'
            problem(
                named,
                f"there is no method {named.attr!r} in expressions",
                remedy or f"there are {', '.join(sorted(METHOD_NAMES))}",
            )
        self.visit(named.value, bound)
        for argument in node.args:
            self._argument(argument, bound, generator=named.attr == "join")
        for keyword in node.keywords:
            if keyword.arg not in METHOD_KEYWORDS.get(named.attr, ()):
                problem(
                    keyword.value,
                    f"{named.attr}() takes no argument {keyword.arg or '**'!r}",
                    "give it by its place",
                )
            self._argument(keyword.value, bound, generator=False)

    def _argument(self, node: ast.expr, bound: Bound, *, generator: bool) -> None:
        if generator and isinstance(node, ast.GeneratorExp):
            self._comprehension(node, bound)
        elif isinstance(node, ast.Starred):
            problem(node, "`*` can't be used in a call", "give the arguments one by one")
        else:
            self.visit(node, bound)

    def _key(self, node: ast.Lambda, bound: Bound) -> None:
        arguments = node.args
        others = [arguments.vararg, arguments.kwarg, *arguments.kwonlyargs, *arguments.posonlyargs]
        if len(arguments.args) != 1 or arguments.defaults or any(others):
            problem(node, "a key takes one item", "write key=lambda item: ...")
        item = arguments.args[0]
        _require_variable(item, item.arg)
        self.visit(node.body, {**bound, item.arg: True})

    def _comprehension(
        self, node: ast.ListComp | ast.DictComp | ast.GeneratorExp, bound: Bound
    ) -> None:
        for place, clause in enumerate(node.generators):
            if clause.is_async:
                problem(node, "`async for` can't be used in an expression", "write `for`")
            if place:
                bound = {**bound, **_variables(node.generators[place:], ready=False)}
            self._argument(clause.iter, bound, generator=True)
            bound = {
                **bound,
                **_variables([clause], ready=True),
                **_variables(node.generators[place + 1 :], ready=False),
            }
            for condition in clause.ifs:
                self.visit(condition, bound)
        if isinstance(node, ast.DictComp):
            self.visit(node.key, bound)
            self.visit(node.value, bound)
        else:
            self.visit(node.elt, bound)


def _variables(clauses: list[ast.comprehension], *, ready: bool) -> Bound:
    return {name: ready for clause in clauses for name in _targets(clause.target)}


def _targets(target: ast.expr) -> Iterator[str]:
    """The names that a `for` assigns."""
    if isinstance(target, ast.Name):
        _require_variable(target, target.id)
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _targets(part)
    else:
        problem(target, "a loop gives values to names only", "write `for item in` or `for a, b in`")


def _require_variable(node: ast.AST, name: str) -> None:
    _require_public(node, name)
    if name in FUNCTIONS:
        problem(node, f"{name!r} is a function here", "choose another name for the variable")


def _require_public(node: ast.AST, name: str) -> None:
    if name.startswith("_"):
        problem(node, f"{name!r} begins with an underscore", "use names and fields without one")


def _require_operator(node: ast.AST, op: ast.AST, known: Any) -> None:
    if type(op) not in known:
        sign, remedy = _REFUSED_OPERATORS[type(op)].split(": ", 1)
        problem(node, f"{sign} can't be used in an expression", remedy)


def _require_arguments(node: ast.Call, name: str, function: Function) -> None:
    count = len(node.args)
    if count < function.least or (function.most is not None and count > function.most):
        problem(node, f"{name}() can't take {count} arguments", f"give it {_arity(function)}")
    for keyword in node.keywords:
        if keyword.arg is None:
            problem(keyword.value, "`**` can't be used in a call", "merge dicts with {**a, **b}")
        _require_public(keyword.value, keyword.arg)
        if function.keywords is not None and keyword.arg not in function.keywords:
            known = ", ".join(sorted(function.keywords))
            problem(
                keyword.value,
                f"{name}() takes no argument {keyword.arg!r}",
                f"it takes {known}" if known else "give it by its place",
            )


def _arity(function: Function) -> str:
    if function.most is None:
        return f"{function.least} or more"
    if function.least == function.most:
        return str(function.least)
    return f"{function.least} to {function.most}"


def _is_singleton(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _meant(name: str, known: Any) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _known_functions() -> str:
    return f"there are {', '.join(sorted(FUNCTIONS))}; call a task in a node of its own"
