"""Parsing of source, when Python refuses a valid text now and then."""

import ast
from collections.abc import Callable
from typing import Any

import pytest

from perdure.core.expressions import parse
from perdure.core.syntax import literal_value, parse_expression, parse_module

PARSE = ast.parse


def failing(times: int) -> Callable[..., Any]:
    """`ast.parse` while other code parses at the same time."""
    left = times

    def parse(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            raise SystemError("AST constructor recursion depth mismatch (before=195, after=247)")
        return PARSE(*args, **kwargs)

    return parse


def test_a_valid_text_is_parsed_again_after_a_system_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for read, text in (
        (parse_module, "a = 1"),
        (parse_expression, "a + 1"),
        (literal_value, " [1, 'two']"),
        (parse, "never_parsed_before + 1"),
    ):
        monkeypatch.setattr(ast, "parse", failing(2))
        read(text)


def test_a_text_that_python_always_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ast, "parse", failing(1_000_000))
    with pytest.raises(SystemError, match="depth mismatch"):
        parse_module("a = 1")


def test_invalid_texts_raise() -> None:
    with pytest.raises(SyntaxError):
        parse_module("a =")
    with pytest.raises(SyntaxError):
        parse_expression("a = 1")
    with pytest.raises(ValueError, match="malformed node"):
        literal_value("a")


def test_valid_texts_are_parsed() -> None:
    assert literal_value(" [1, 'two']") == [1, "two"]
    assert ast.unparse(parse_expression("a+1")) == "a + 1"
    assert [type(each) for each in parse_module("a = 1\nb").body] == [ast.Assign, ast.Expr]
