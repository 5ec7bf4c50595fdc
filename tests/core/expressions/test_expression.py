import ast
import copy
import dataclasses
import pickle
from collections import ChainMap
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import pytest

from perdure.core.errors import PerdureError
from perdure.core.expressions import Expression, from_ast, parse


class Color(StrEnum):
    RED = "red"


@dataclass
class Order:
    item: str
    total: int
    _secret: str = "s"

    @property
    def price(self) -> int:
        raise AssertionError("only fields are read")


class Parcel(msgspec.Struct):
    weight: float
    order: Order


def evaluate(text: str, **scope: Any) -> Any:
    return parse(text).evaluate(scope)


def test_the_text_is_canonical() -> None:
    assert parse("  (a+b) *  2 # twice ").text == "(a + b) * 2"
    assert parse('"a"').text == "'a'"
    assert parse("[a,\n b]").text == "[a, b]"


def test_expressions_are_equal_by_their_text() -> None:
    assert parse("a+b") == parse(" a + b ")
    assert hash(parse("a+b")) == hash(parse("(a + b)"))
    assert parse("a + b") != parse("b + a")
    assert repr(parse("a+b")) == "Expression(text='a + b')"


def test_an_expression_can_not_be_changed() -> None:
    expression = parse("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        expression.text = "b"  # type: ignore[misc]


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_an_expression_survives_copying(again: Any) -> None:
    twice = again(parse("[a * n for n in b]"))
    assert isinstance(twice, Expression)
    assert twice.evaluate({"a": 2, "b": [1, 2]}) == [2, 4]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1", ""),
        ("a.b[c]", "a c"),
        ("len(a)", "a"),
        ("[x for x in xs if x > y]", "xs y"),
        ("[x for x in x]", "x"),
        ("[x + z for x, (y, z) in xs for w in y]", "xs"),
        ("sorted(xs, key=lambda x: x + y)", "xs y"),
        ("x + sum(x for x in xs)", "x xs"),
        ("f'{a:{b}} {c!r}'", "a b c"),
        ("{a: b, **c}", "a b c"),
        ("a.get(b).lower()", "a b"),
    ],
)
def test_names_are_the_names_read_from_the_scope(text: str, names: str) -> None:
    assert parse(text).names == frozenset(names.split())


def test_fields_of_dicts_dataclasses_and_structs_are_read_alike() -> None:
    parcel = Parcel(2.5, Order("lamp", 30))
    for value in (parcel, {"weight": 2.5, "order": {"item": "lamp", "total": 30}}):
        assert evaluate("p.order.total * p.weight", p=value) == 75


@pytest.mark.parametrize("text", ["p.price", "p.items", "n.real", "t.upper", "xs.a", "d.b"])
def test_only_declared_fields_are_read(text: str) -> None:
    with pytest.raises(AttributeError, match="has no field"):
        evaluate(text, p=Order("lamp", 30), n=1, t="a", xs=[], d={"a": 1})


def test_the_error_for_a_missing_field_lists_the_existing_ones() -> None:
    with pytest.raises(AttributeError, match=r"no field 'b' \(there are: 'a', 'c'\)"):
        evaluate("d.b", d={"a": 1, "c": 2})


def test_a_field_may_be_named_like_a_method_or_a_function() -> None:
    assert evaluate("d.items[0] + d.len", d={"items": [1], "len": 2}) == 3
    assert evaluate("sorted(d.items())", d={"items": [1], "len": 2}) == [("items", [1]), ("len", 2)]


def test_text_of_an_enum_is_text() -> None:
    assert evaluate("c.upper() + c + f'{c}'", c=Color.RED) == "REDredred"


def test_any_mapping_is_a_scope() -> None:
    assert parse("a + b").evaluate(ChainMap({"a": 1}, {"a": 5, "b": 2})) == 3


def test_a_missing_name_is_a_name_error() -> None:
    with pytest.raises(NameError, match="'b'"):
        evaluate("a + b", a=1)


def test_an_evaluation_does_not_change_its_inputs() -> None:
    scope: dict[str, Any] = {"xs": [3, 1], "d": {"a": [1]}}
    before = copy.deepcopy(scope)
    expression = parse("[sorted(xs), xs + [1], {**d, 'b': 2}, [x for x in xs], dict(d)]")
    value = expression.evaluate(scope)
    value[2]["c"] = value[4]["c"] = 1
    assert scope == before


def test_generators_in_generators_have_variables_of_their_own() -> None:
    text = "[sum(x * y for x in range(y)) for y in range(4) if any(x == y for x in [1, 3])]"
    assert evaluate(text) == [0, 9]
    assert evaluate("[[x for x in range(x)] for x in range(3)]") == [[], [0], [0, 1]]
    assert evaluate("list(zip((x for x in a), (x for x in b)))", a=[1, 2], b=[3, 4]) == [
        (1, 3),
        (2, 4),
    ]
    assert evaluate(
        "[max(r, key=lambda v: v * s) for r in rows for s in [1, -1]]", rows=[[1, 2]]
    ) == [
        2,
        1,
    ]


def test_a_part_of_a_source_is_the_same_expression() -> None:
    source = ast.parse("if order.total > 100 and not paid: pass").body[0]
    assert isinstance(source, ast.If)
    expression = from_ast(source.test)
    assert expression == parse("order.total > 100 and (not paid)")
    assert expression.evaluate({"order": Order("lamp", 200), "paid": False}) is True


def test_nested_evaluations_of_one_expression_do_not_interfere() -> None:
    """Also not if one is begun within another, as a scope that computes its values may do."""
    expression = parse("[x + more for x in xs]")

    class Nested(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            return len(expression.evaluate({"xs": [9, 9], "more": 1}))

    assert expression.evaluate(Nested(xs=[1, 2])) == [3, 4]


def test_errors_of_expressions_are_perdure_errors() -> None:
    with pytest.raises(PerdureError):
        parse("lambda: 0")
    with pytest.raises(PerdureError):
        evaluate("9 ** 9 ** 9")
