"""Texts that are no expressions are refused, with a remedy."""

import ast
import time

import pytest

from perdure.core.expressions import ExpressionProblem, from_ast, parse
from perdure.core.expressions.nesting import require_shallow

REFUSED = {
    "": ("empty", "write one expression"),
    "a b": ("no Python", "write one expression"),
    "import os": ("import", "without one"),
    "from os import path": ("import", "without one"),
    "a = 1": ("assignment", "`==`"),
    "a += 1": ("assignment", "only the new value"),
    "return a": ("return", "only the value"),
    "del a": ("statement", "one expression"),
    "a; b": ("statement", "one expression"),
    "lambda a: a": ("`lambda`", "comprehension"),
    "(a := 1)": ("`:=`", "step before"),
    "await a": ("`await`", "node of its own"),
    "(yield a)": ("`yield`", "list"),
    "{a, b}": ("a set", "list"),
    "{a for a in b}": ("a set", "list"),
    "(a for a in b)": ("generator", "list"),
    "a in (b for b in c)": ("generator", "list"),
    "max(len(b for b in c), 1)": ("generator", "list"),
    "[a async for a in b]": ("`async for`", "`for`"),
    "[a for a.b in c]": ("names only", "for item in"),
    "[a for a[0] in c]": ("names only", "for item in"),
    "[a for a, *b in c]": ("names only", "for item in"),
    "[len for len in a]": ("is a function", "another name"),
    "[a for a in b for c in c]": ("before its `for`", "another name"),
    "[a for a in b if c for c in d]": ("before its `for`", "another name"),
    "b'a'": ("not plain data", "text"),
    "1j": ("not plain data", "numbers"),
    "...": ("not plain data", "text"),
    "a & b": ("`&`", "`and`"),
    "a | b": ("`|`", "`or`"),
    "a ^ b": ("`^`", "`!=`"),
    "a << b": ("`<<`", "2 **"),
    "a >> b": ("`>>`", "2 **"),
    "a @ b": ("`@`", "task"),
    "~a": ("`~`", "`not`"),
    "a is b": ("`is`", "`==`"),
    "a is not 3": ("`is`", "`!=`"),
    "'%s' % a": ("`%`", "f-string"),
    "f'{a}' % a": ("`%`", "f-string"),
    "_a": ("underscore", "without one"),
    "a.__class__": ("underscore", "without one"),
    "a._b": ("underscore", "without one"),
    "a.__len__()": ("underscore", "without one"),
    "__import__('os')": ("underscore", "without one"),
    "[a for _ in b]": ("underscore", "without one"),
    "dict(_a=1)": ("underscore", "without one"),
    "f'{a._b}'": ("underscore", "without one"),
    "f'{a:{b.__class__}}'": ("underscore", "without one"),
    "lenn(a)": ("no function 'lenn'", "'len'"),
    "eval('1')": ("no function 'eval'", "there are abs"),
    "isinstance(a, b)": ("no function", "there are abs"),
    "getattr(a, 'b')": ("no function", "there are abs"),
    "a.uper()": ("no method 'uper'", "'upper'"),
    "a.append(1)": ("no method 'append'", "there are"),
    "'{}'.format(a)": ("no method 'format'", "f-string"),
    "'a'.center(9)": ("no method 'center'", "there are"),
    "a()()": ("can't be called", "there are abs"),
    "(a or b)(c)": ("can't be called", "there are abs"),
    "len": ("not a value", "call it"),
    "str.upper(a)": ("not a value", "call it"),
    "len()": ("0 arguments", "give it 1"),
    "round(a, 1, 2)": ("3 arguments", "1 to 2"),
    "max()": ("0 arguments", "1 or more"),
    "len(a, b=1)": ("no argument 'b'", "by its place"),
    "sorted(a, revers=True)": ("no argument 'revers'", "key, reverse"),
    "sorted(a, key=len)": ("a key must be written", "lambda item"),
    "sorted(a, key=lambda a, b: a)": ("a key takes one item", "lambda item"),
    "sorted(a, key=lambda a=1: a)": ("a key takes one item", "lambda item"),
    "sorted(a, key=lambda *a: a)": ("a key takes one item", "lambda item"),
    "dict(a=lambda b: b)": ("`lambda`", "comprehension"),
    "a.replace('b', 'c', count=1)": ("no argument 'count'", "by its place"),
    "a.get(**b)": ("no argument '**'", "by its place"),
    "max(*a)": ("`*`", "one by one"),
    "dict(**a)": ("`**`", "merge dicts"),
    "*a": ("statement", "one expression"),
    "a[b:c, d]": ("stands alone", "a[1:2][3]"),
    "f'{a[\"b'": ("not closed", "other kind of quotes"),
    'f"{a["b"]}"': ("not closed", "other kind of quotes"),
    "f'{a!r:{b!s:{c}}}'": ("nest too deep", "constant"),
    "f'''{'\\n'.join(a)}'''": ("backslash", "`+`"),
    "f'''{'''a'''}'''": ("", ""),
    "0x" + "f" * 1025: ("4,100 bits", "at most 4,096"),
    "9" * 5000: ("no Python", "write"),
    "a\0b": ("", ""),
    "'\ud800'": ("can't be read", "Python"),
    "a" * 10_001: ("10,001 characters", "at most 10,000"),
    "[" + "a," * 1001 + "]": ("more than 1,000 parts", "task"),
    "+".join(["a"] * 51): ("nests too deep", "several steps"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.items(), ids=lambda value: str(value)[:30])
def test_a_text_is_refused_with_what_to_write_instead(text: str, said: tuple[str, str]) -> None:
    with pytest.raises(ExpressionProblem) as raised:
        parse(text)
    what, remedy = said
    assert what in raised.value.what
    assert remedy in raised.value.remedy


DEEP = {
    "brackets": "(" * 5000 + ")" * 5000,
    "lists": "[" * 9000,
    "fields": "a" + ".b" * 4900,
    "items": "a" + "[0]" * 3000,
    "calls": "a" + "()" * 4900,
    "minus": "-" * 9000 + "a",
    "not": "not " * 2400 + "a",
    "sums": "a" + "+a" * 4900,
    "powers": "a" + "**a" * 3000,
    "conditions": "a if b else " * 800 + "a",
    "lambdas": "lambda: " * 1200 + "a",
    "comparisons": "a<(" * 3000,
    "minus in an f-string": 'f"{' + "-" * 9000 + 'a}"',
    "brackets in an f-string": 'f"{' + "(" * 4000 + ")" * 4000 + '}"',
    "behind a brace in a text": "f\"{'}' + " + "(" * 4000 + ")" * 4000 + '}"',
    "behind a closing bracket in a text": "(')' + " * 1500,
    "in a format": 'f"{a:{' + "-" * 9000 + 'a}}"',
    "behind a word that ends like a prefix": 'a if"(" else ' * 700 + "a",
    "dicts": "{0:" * 3000,
    "unclosed": "(" * 4000 + "'",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_deep_nesting_is_refused_before_parsing(text: str) -> None:
    with pytest.raises(ExpressionProblem, match="nests too deep"):
        require_shallow(text)


def test_a_text_of_the_maximum_depth_is_accepted() -> None:
    assert parse("+".join(["a"] * 50)).evaluate({"a": 1}) == 50
    assert parse("-" * 49 + "a").evaluate({"a": 1}) == -1
    assert parse("(" * 99 + "a" + ")" * 99).text == "a"


def test_refusals_are_fast() -> None:
    before = time.perf_counter()
    for text in [*DEEP.values(), "f'{a}'" * 1600, "'" * 9_999, "f'{" * 3000, "(" * 140 + "a"]:
        with pytest.raises(ExpressionProblem):
            parse(text)
    assert time.perf_counter() - before < 5


def test_a_tree_of_any_depth_is_refused_without_recursion() -> None:
    tree: ast.expr = ast.Name("a", lineno=7, col_offset=3)
    for _ in range(100_000):
        tree = ast.UnaryOp(ast.USub(), tree, lineno=7, col_offset=3)
    with pytest.raises(ExpressionProblem, match="nests too deep"):
        from_ast(tree)
    while isinstance(tree, ast.UnaryOp):  # taken apart here: its own clean-up would recurse
        tree = tree.operand


@pytest.mark.parametrize(
    ("text", "lineno", "column"),
    [
        ("a + _b", 1, 4),
        ("  a + _b", 1, 6),
        ("'äöü' + _b", 1, 8),
        ("[a,\n  _b]", 2, 2),
        ("\n\n  [a,\n'ä', _b]", 4, 5),
        ("a + ", 1, 3),
        ("'ä' b", 1, 4),
        (" 'ä' +\n", 1, 6),
    ],
)
def test_a_problem_has_its_position(text: str, lineno: int, column: int) -> None:
    with pytest.raises(ExpressionProblem) as raised:
        parse(text)
    error = raised.value
    assert (error.lineno, error.column, error.col_offset) == (lineno, column, column)


def test_a_problem_in_a_functions_source_has_its_position_there() -> None:
    source = ast.parse("def f(a):\n    b = 1\n    return [a, {b}]")
    found = next(node for node in ast.walk(source) if isinstance(node, ast.List))
    with pytest.raises(ExpressionProblem) as raised:
        from_ast(found)
    assert (raised.value.lineno, raised.value.col_offset) == (3, 15)
    assert raised.value.remedy == "write a list: [...]"


def test_f_strings_that_older_pythons_can_not_parse_are_refused() -> None:
    for text in ("\\", "\r"):
        field = ast.FormattedValue(ast.Constant(text), -1, None)
        with pytest.raises(ExpressionProblem, match="f-string"):
            from_ast(ast.JoinedStr([field]))
