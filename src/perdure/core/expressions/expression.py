"""An expression: checked and compiled once, evaluated many times."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

from perdure.core.errors import ExpressionProblem
from perdure.core.expressions.budget import Code, Evaluation, Meter, too_costly
from perdure.core.expressions.checking import check_expression, problem
from perdure.core.expressions.compiling import Compiler
from perdure.core.expressions.nesting import require_shallow
from perdure.core.expressions.plain import CONTAINERS, measure
from perdure.core.limits import MAX_EXPRESSION_LENGTH, MAX_EXPRESSION_WORK, MAX_PAYLOAD_BYTES
from perdure.core.syntax import parse_expression, parse_module

_STATEMENTS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.Import: ("an import", "the functions of expressions are there without one"),
    ast.ImportFrom: ("an import", "the functions of expressions are there without one"),
    ast.Assign: ("an assignment", "write only the value; compare with `==`"),
    ast.AnnAssign: ("an assignment", "write only the value; compare with `==`"),
    ast.AugAssign: ("an assignment", "write only the new value"),
    ast.Return: ("a return", "write only the value"),
}


@dataclass(frozen=True, slots=True)
class Expression:
    """`text` is the canonical form, the only part that is stored; `names` are the names that it reads."""

    text: str
    names: frozenset[str] = field(compare=False, repr=False)
    _code: Code = field(compare=False, repr=False)
    _variables: int = field(compare=False, repr=False)
    _makes: bool = field(compare=False, repr=False)
    """Whether it may make a list or a dict, and so one that holds another many times."""

    def evaluate(self, scope: Mapping[str, Any], meter: Meter | None = None) -> Any:
        """Returns the value; raises the exception that Python would raise, or `ExpressionTooCostly`.

        `meter` counts the operations, also of an evaluation that raises.
        """
        evaluation = Evaluation(scope, self._variables)
        try:
            value = self._code(evaluation)
        finally:
            if meter is not None:
                meter.spent += MAX_EXPRESSION_WORK - evaluation.left
        if (
            self._makes
            and isinstance(value, CONTAINERS)
            and measure(value, MAX_PAYLOAD_BYTES) > MAX_PAYLOAD_BYTES
        ):
            too_costly(f"the expression makes a value of more than {MAX_PAYLOAD_BYTES:,} bytes")
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return parse, (self.text,)


def parse(text: str) -> Expression:
    """The expression in `text`. Raises `ExpressionProblem` with the position."""
    margin = len(text) - len(text.lstrip())
    try:
        return _parse(text.strip())
    except ExpressionProblem as error:
        raise _placed(error, text, margin) from error.__cause__


def from_ast(node: ast.expr) -> Expression:
    """The expression of a part of a function's source. Problems have positions in that source."""
    check_expression(node)
    text = _unparsed(node)
    try:
        expression = _parse(text)
    except ExpressionProblem as error:
        problem(node, error.what, error.remedy)
    if expression.text != text:
        _ambiguous(node)
    return expression


@lru_cache(maxsize=1024)
def _parse(text: str) -> Expression:
    tree = _tree_of(text)
    names = check_expression(tree)
    canonical = _unparsed(tree)
    if canonical != text and ast.dump(_tree_of(canonical)) != ast.dump(tree):
        _ambiguous(tree)
    compiler = Compiler()
    code = compiler.code(tree, {})
    return Expression(canonical, names, code, compiler.variables, _makes(tree))


def _tree_of(text: str) -> ast.expr:
    if len(text) > MAX_EXPRESSION_LENGTH:
        raise ExpressionProblem(
            f"the expression has {len(text):,} characters",
            f"use at most {MAX_EXPRESSION_LENGTH:,}, or compute it in a task",
            1,
            0,
        )
    require_shallow(text)
    try:
        return parse_expression(text, "<expression>")
    except SyntaxError as error:
        raise _unreadable(text, error) from error
    except (MemoryError, RecursionError, ValueError) as error:
        raise ExpressionProblem(
            f"the expression can't be read ({error})", "write it as Python", 1, 0
        ) from error


def _unreadable(text: str, error: SyntaxError) -> ExpressionProblem:
    """The problem of a text that is no expression; it may be a statement."""
    try:
        statements = parse_module(text, "<expression>").body
    except (SyntaxError, MemoryError, RecursionError, ValueError):
        statements = []
    if statements:
        what, remedy = _STATEMENTS.get(
            type(statements[0]), ("a statement", "write one expression, which has a value")
        )
        return ExpressionProblem(f"this is {what}, and no expression", remedy, 1, 0)
    what = (
        "the expression is empty" if not text else f"this is no Python ({error.msg.split(':')[0]})"
    )
    line = (error.text or "").rstrip("\n")
    before = line[: error.offset - 1] if error.offset else line
    remedy = "write one expression, which has a value"
    return ExpressionProblem(what, remedy, error.lineno or 1, len(before.encode(errors="replace")))


def _unparsed(tree: ast.expr) -> str:
    try:
        return ast.unparse(tree)
    except ValueError:  # before 3.12, f-strings can't express this
        problem(
            tree, "there is a backslash in a field of an f-string", "join texts with `+` instead"
        )


def _ambiguous(tree: ast.expr) -> NoReturn:
    problem(
        tree,
        "an f-string has no form that every Python reads alike",
        "use no quotes and no line breaks inside of its fields, or join texts with `+`",
    )


def _makes(tree: ast.expr) -> bool:
    makers = (ast.BinOp, ast.Call, ast.Dict, ast.DictComp, ast.List, ast.ListComp, ast.Tuple)
    return any(isinstance(node, makers) for node in ast.walk(tree))


def _placed(error: ExpressionProblem, text: str, margin: int) -> ExpressionProblem:
    """The problem with its position in the given `text`, in characters: Python counts bytes."""
    lines = text.lstrip().split("\n")
    line = lines[min(error.lineno, len(lines)) - 1]
    column = len(line.encode(errors="replace")[: error.column].decode(errors="ignore"))
    before = text[:margin]
    if error.lineno == 1:
        column += len(before) - (before.rfind("\n") + 1)
    lineno = error.lineno + before.count("\n")
    return ExpressionProblem(error.what, error.remedy, lineno, column)
