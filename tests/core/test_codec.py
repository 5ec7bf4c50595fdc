import enum
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.codec import JsonCodec
from perdure.core.errors import NotDecodable, NotEncodable, PayloadTooLarge
from perdure.core.limits import MAX_PAYLOAD_BYTES

codec = JsonCodec()


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Item:
    name: str
    price: Decimal
    weight: float | None = None


class Order(msgspec.Struct):
    id: UUID
    at: datetime
    items: list[Item]
    colour: Colour
    notes: dict[int, str]
    token: bytes


ORDER = Order(
    UUID(int=7),
    datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC),
    [Item("a", Decimal("0.10")), Item("b", Decimal("1E+3"), 2.5)],
    Colour.BLUE,
    {10: "ten", 9: "nine"},
    b"\x00\xff",
)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        pytest.param(None, type(None), id="none"),
        pytest.param(True, bool, id="bool"),
        pytest.param(2**70, int, id="large int"),
        pytest.param(0.1, float, id="float"),
        pytest.param("\u00e9\U0001f600\x00", str, id="text"),
        pytest.param(Item("a", Decimal("0.10"), None), Item, id="dataclass"),
        pytest.param(ORDER, Order, id="struct"),
        pytest.param(Colour.RED, Colour, id="enum"),
        pytest.param(Level.LOW, Level, id="int enum"),
        pytest.param(ORDER.at, datetime, id="aware datetime"),
        pytest.param(datetime(2024, 1, 1), datetime, id="naive datetime"),  # noqa: DTZ001
        pytest.param(date(2024, 1, 1), date, id="date"),
        pytest.param(timedelta(days=1, microseconds=1), timedelta, id="timedelta"),
        pytest.param(UUID(int=1), UUID, id="uuid"),
        pytest.param(Decimal("1.10"), Decimal, id="decimal"),
        pytest.param(b"\x00\xff", bytes, id="bytes"),
        pytest.param({10: "a", 9: "b"}, dict[int, str], id="int keys"),
        pytest.param({Colour.RED: 1}, dict[Colour, int], id="enum keys"),
        pytest.param({UUID(int=1): 1}, dict[UUID, int], id="uuid keys"),
        pytest.param((1, "a"), tuple[int, str], id="tuple"),
        pytest.param({3, 1, 2}, set[int], id="set"),
        pytest.param({"a": [{"b": (ORDER, None)}]}, Any, id="nested"),
    ],
)
def test_value_comes_back_as_its_type(value: object, wanted: Any) -> None:
    payload = codec.encode(value)
    if wanted is Any:
        wanted = dict[str, list[dict[str, tuple[Order, None]]]]
    again: object = codec.decode(payload, wanted)
    assert again == value
    assert type(again) is type(value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
).filter(lambda value: "inf" not in repr(value))


@given(plain)
def test_json_value_comes_back_equal(value: Any) -> None:
    assert codec.decode(codec.encode(value), object) == value


@given(st.dictionaries(st.text(max_size=3), st.integers()))
def test_equal_dicts_give_the_same_bytes(value: dict[str, int]) -> None:
    assert codec.encode(dict(reversed(value.items()))) == codec.encode(value)


@given(st.dictionaries(st.integers(), st.dictionaries(st.text(max_size=3), st.integers())))
def test_equal_dicts_with_int_keys_give_the_same_bytes(value: dict[int, dict[str, int]]) -> None:
    assert codec.encode(dict(reversed(value.items()))) == codec.encode(value)


@pytest.mark.parametrize("text", ["{'a': set('wxyz')}", "{1: set('wxyz')}"])
def test_equal_sets_give_the_same_bytes_in_every_process(text: str) -> None:
    program = f"from perdure.core.codec import JsonCodec; print(JsonCodec().encode({text}))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        pytest.param(lambda x: x, "$", id="alone"),
        pytest.param(lambda x: [None, x], "$[1]", id="list"),
        pytest.param(lambda x: (x,), "$[0]", id="tuple"),
        pytest.param(lambda x: {x}, "$[0]", id="set"),
        pytest.param(lambda x: {"a": {"b": [0.0, x]}}, "$.a.b[1]", id="dict"),
        pytest.param(lambda x: {1: {2: x}}, "$.1.2", id="int keys"),
        pytest.param(lambda x: Item("a", Decimal(1), x), "$.weight", id="dataclass"),
        pytest.param(lambda x: msgspec.defstruct("S", ["f"])(f=[x]), "$.f[0]", id="struct"),
    ],
)
def test_number_without_a_json_form_is_refused_by_its_place(
    number: float, wrap: Callable[[float], object], path: str
) -> None:
    with pytest.raises(NotEncodable) as refused:
        codec.encode(wrap(number))
    assert refused.value.what == f"{number} at {path} has no JSON form"


@pytest.mark.parametrize(
    "value", [None, [None, 1.5], {"a": None}, Item("a", Decimal(1), None), "null", [math.pi]]
)
def test_legitimate_none_passes(value: object) -> None:
    assert codec.encode(value)


def nested(depth: int, innermost: object) -> object:
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


def circular() -> object:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda: 1, id="lambda"),
        pytest.param({"a": [lambda: 1]}, id="nested lambda"),
        pytest.param(object(), id="object"),
        pytest.param(1j, id="complex"),
        pytest.param({1: 1j}, id="complex under an int key"),
        pytest.param({(1, 2): 1}, id="tuple key"),
        pytest.param({None: 1}, id="none key"),
        pytest.param("\ud800", id="lone surrogate"),
        pytest.param({"\ud800": 1}, id="lone surrogate key"),
        pytest.param({1: "\ud800"}, id="lone surrogate under an int key"),
        pytest.param((x for x in "ab"), id="generator"),
        pytest.param(circular(), id="circle"),
        pytest.param(nested(100_000, 1), id="deep"),
        pytest.param(nested(100_000, None), id="deep none"),
        pytest.param({1: nested(100_000, 1)}, id="deep under an int key"),
    ],
)
def test_value_without_a_json_form_is_refused(value: object) -> None:
    with pytest.raises(NotEncodable, match=r"can't be stored \(.+\): use JSON-like values"):
        codec.encode(value)


def test_value_near_the_recursion_limit_is_stored_or_refused_but_never_breaks() -> None:
    for depth in range(800, 1010):
        value = nested(depth, None)
        try:
            assert len(codec.encode(value)) == 2 * depth + 4
        except NotEncodable:
            continue


@pytest.mark.parametrize(
    "value", [{1: "a", "1": "b"}, {"x": [{Level.LOW: 1, "1": 2}]}, {b"a": 1, "YQ==": 2}]
)
def test_keys_with_the_same_text_are_refused_instead_of_losing_one(value: object) -> None:
    with pytest.raises(NotEncodable, match="two keys of one dict"):
        codec.encode(value)


def test_payload_at_the_limit_passes() -> None:
    assert len(codec.encode("x" * 98, limit=100)) == 100


def test_payload_over_the_limit_is_refused_with_both_numbers() -> None:
    with pytest.raises(PayloadTooLarge, match=r"1,003 bytes .* limit of 1,000"):
        codec.encode("x" * 1001, limit=1000)


def test_default_limit_is_that_of_a_payload() -> None:
    assert len(codec.encode("x" * (MAX_PAYLOAD_BYTES - 2))) == MAX_PAYLOAD_BYTES
    with pytest.raises(PayloadTooLarge, match="2,097,153"):
        codec.encode("x" * (MAX_PAYLOAD_BYTES - 1))


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        pytest.param(b'"a"', int, id="text as int"),
        pytest.param(b"1", str, id="int as text"),
        pytest.param(b'{"name":"a"}', Item, id="missing field"),
        pytest.param(b'"green"', Colour, id="no such enum"),
        pytest.param(b'{"a":1}', dict[int, int], id="text key as int"),
        pytest.param(b"", int, id="empty"),
        pytest.param(b"{", dict, id="cut off"),
        pytest.param(b"1 2", int, id="trailing"),
        pytest.param(b'"\xff"', str, id="not utf-8"),
        pytest.param(b"[" * 100_000, list, id="deep"),
    ],
)
def test_payload_of_another_type_is_refused(payload: bytes, wanted: Any) -> None:
    with pytest.raises(NotDecodable, match="the annotation must describe the value"):
        codec.decode(payload, wanted)


def test_ambiguous_annotation_is_refused() -> None:
    with pytest.raises(NotDecodable, match="is not supported"):
        codec.decode(b"{}", dict[str, int] | Item)  # type: ignore[arg-type]


def test_refusal_names_the_wanted_type() -> None:
    with pytest.raises(NotDecodable, match="payload is not a Item"):
        codec.decode(b"1", Item)


@dataclass
class PlainDefault:
    item: str
    gift: bool = False


@dataclass(slots=True)
class SlottedDefault:
    item: str
    gift: bool = False


@dataclass
class MadeDefault:
    item: str
    gift: list[int] = field(default_factory=list)


class StructDefault(msgspec.Struct):
    item: str
    gift: bool = False


class OmittedDefault(msgspec.Struct, omit_defaults=True):
    item: str
    gift: bool = False


@pytest.mark.parametrize(
    ("wanted", "again"),
    [
        (PlainDefault, b'{"item":"lamp"}'),
        (SlottedDefault, b'{"item":"lamp","gift":false}'),
        (MadeDefault, b'{"item":"lamp","gift":[]}'),
        (StructDefault, b'{"item":"lamp","gift":false}'),
        (OmittedDefault, b'{"item":"lamp"}'),
    ],
)
def test_value_that_lacks_a_field_with_a_default_is_written_again_as_the_docs_say(
    wanted: type, again: bytes
) -> None:
    """docs/how-to/upcasters.md says which changes of a type a run survives without an upcaster."""
    codec = JsonCodec()
    assert codec.encode(codec.decode(b'{"item":"lamp"}', wanted)) == again
