"""Values of old shapes are upcast, wherever their type occurs."""

from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pytest

from perdure.core.codec import JsonCodec
from perdure.core.errors import NotDecodable
from perdure.core.upcasting import Upcaster, UpcastingCodec

V = TypeVar("V")


@dataclass
class Price:
    amount: int
    currency: str


@dataclass
class Line:
    name: str
    price: Price
    more: "list[Line]" = field(default_factory=list)


class Box(msgspec.Struct, Generic[V]):
    inside: V


class Short(msgspec.Struct, array_like=True, tag="short"):
    price: Price


class Cash(msgspec.Struct, tag="cash"):
    price: Price


class Card(msgspec.Struct, tag="card"):
    number: str


class Pair(NamedTuple):
    left: Price
    right: int


class Bill(TypedDict):
    total: Price


class Colour(Enum):
    GREY = "grey"


OLD = 5
NEW = {"amount": 5, "currency": "EUR"}
EURO = Price(5, "EUR")


def from_number(old: int) -> dict[str, Any]:
    return {"amount": old, "currency": "EUR"}


def codec(*upcasters: Upcaster) -> UpcastingCodec:
    known: dict[type, list[Upcaster]] = {}
    for each in upcasters:
        known.setdefault(each.of, []).append(each)
    return UpcastingCodec(JsonCodec(), known)


PRICES = codec(Upcaster(Price, from_number, None, "from_number"))


@pytest.mark.parametrize(
    ("stored", "wanted", "value"),
    [
        (OLD, Price, EURO),
        (NEW, Price, EURO),
        ([OLD, NEW], list[Price], [EURO, EURO]),
        ({"a": OLD, "b": NEW}, dict[str, Price], {"a": EURO, "b": EURO}),
        (OLD, Price | None, EURO),
        (None, Price | None, None),
        ([[OLD]], list[list[Price]], [[EURO]]),
        ([OLD, 1], tuple[Price, int], (EURO, 1)),
        ([OLD, OLD], tuple[Price, ...], (EURO, EURO)),
        ([OLD, 1], Pair, Pair(EURO, 1)),
        ({"total": OLD}, Bill, {"total": EURO}),
        ({"inside": OLD}, Box[Price], Box(EURO)),
        ({"inside": [OLD]}, Box[list[Price]], Box([EURO])),
        (["short", OLD], Short, Short(EURO)),
        ({"type": "cash", "price": OLD}, Cash | Card, Cash(EURO)),
        ({"type": "card", "number": "7"}, Cash | Card, Card("7")),
        ({"name": "x", "price": OLD}, Line, Line("x", EURO)),
        (OLD, Annotated[Price, msgspec.Meta(title="a price")], EURO),
        ("text", Price | str, "text"),
        (OLD, Price | str, EURO),
        (OLD, str | Price | None, EURO),
        ([OLD], list[Price] | None, [EURO]),
        (7, int, 7),
        ({"any": [OLD]}, object, {"any": [OLD]}),
    ],
)
def test_an_old_shape_is_read_wherever_its_type_occurs(
    stored: Any, wanted: Any, value: Any
) -> None:
    payload = JsonCodec().encode(stored)
    assert PRICES.decode(payload, wanted) == value


def test_a_recursive_type_is_upcast() -> None:
    stored: dict[str, Any] = {"name": "leaf", "price": OLD}
    for depth in range(40):
        stored = {"name": f"{depth}", "price": OLD, "more": [stored]}
    line = PRICES.decode(JsonCodec().encode(stored), Line)
    while line.more:
        assert line.price == EURO
        line = line.more[0]
    assert (line.name, line.price) == ("leaf", EURO)


def test_an_enum_value_may_be_renamed() -> None:
    colours = codec(Upcaster(Colour, lambda _: "grey", lambda old: old == "gray", "american"))
    assert colours.decode(b'["gray","grey"]', list[Colour]) == [Colour.GREY, Colour.GREY]
    assert colours.decode(b'{"gray":1}', dict[Colour, int]) == {Colour.GREY: 1}


def test_several_upcasters_apply_from_the_oldest_to_the_newest() -> None:
    @dataclass
    class Name:
        first: str
        last: str
        title: str

    def split(old: str) -> dict[str, Any]:
        first, _, last = old.partition(" ")
        return {"first": first, "last": last}

    names = codec(
        Upcaster(Name, split, lambda old: isinstance(old, str), "split"),
        Upcaster(Name, lambda old: {**old, "title": ""}, lambda old: "title" not in old, "titled"),
    )
    ada = Name("Ada", "Lovelace", "")
    assert names.decode(b'"Ada Lovelace"', Name) == ada
    assert names.decode(b'{"first":"Ada","last":"Lovelace"}', Name) == ada
    assert names.decode(b'{"first":"Ada","last":"Lovelace","title":""}', Name) == ada


def test_the_condition_applies_even_if_the_value_could_be_read() -> None:
    """The same fields may have had another meaning."""
    cents = codec(
        Upcaster(
            Price,
            lambda old: {"amount": old["amount"] * 100, "currency": old["currency"].upper()},
            lambda old: old["currency"].islower(),
            "in cents",
        )
    )
    assert cents.decode(b'{"amount":5,"currency":"eur"}', Price) == Price(500, "EUR")
    assert cents.decode(b'{"amount":5,"currency":"EUR"}', Price) == Price(5, "EUR")


def test_an_outer_type_is_upcast_before_its_fields() -> None:
    lines = codec(
        Upcaster(Price, from_number, None, "from_number"),
        Upcaster(Line, lambda old: {"name": old[0], "price": old[1]}, None, "from_list"),
    )
    assert lines.decode(b'["x",5]', Line) == Line("x", EURO)
    assert lines.decode(b'{"name":"x","price":5}', Line) == Line("x", EURO)


def test_an_upcaster_may_change_its_argument() -> None:
    def in_place(old: dict[str, Any]) -> dict[str, Any]:
        old["currency"] = "EUR"
        return old

    assert codec(Upcaster(Price, in_place, None, "in_place")).decode(
        b'[{"amount":5},{"amount":5}]', list[Price]
    ) == [EURO, EURO]


def test_a_payload_is_modernized_only_by_an_upcaster() -> None:
    assert PRICES.modernized(b"[5]", list[Price]) == b'[{"amount":5,"currency":"EUR"}]'
    assert PRICES.modernized(b'[{"amount":5,"currency":"EUR"}]', list[Price]) is None
    assert PRICES.modernized(b"5", int) is None


DIGEST = sha256(b'{"cost":5}').hexdigest()[:8]


def test_an_upcaster_that_fails_is_named_with_the_shape_of_its_argument() -> None:
    failing = codec(Upcaster(Price, lambda old: old["amount"], None, "'failing' (prices.py:7)"))
    with pytest.raises(NotDecodable) as caught:
        failing.decode(b'[{"cost":5}]', list[Price])
    assert str(caught.value) == (
        "upcaster 'failing' (prices.py:7) of Price failed with KeyError('amount') on "
        "{cost: int} (sha256 "
        f"{DIGEST}): fix the upcaster; the stored value is unchanged"
    )


def test_a_failing_condition_is_named_too() -> None:
    asking = codec(Upcaster(Price, from_number, lambda old: old["version"] == 1, "asking"))
    with pytest.raises(NotDecodable, match="upcaster asking of Price failed with KeyError"):
        asking.decode(b"{}", Price)


def test_an_upcaster_that_returns_a_wrong_shape_is_named_with_that_shape() -> None:
    wrong = codec(Upcaster(Price, lambda old: {"amount": old}, None, "wrong"))
    with pytest.raises(NotDecodable) as caught:
        wrong.decode(b"5", Price)
    assert "missing required field `currency`" in str(caught.value)
    assert "even after upcaster wrong: {amount: int} (sha256 " in str(caught.value)


def test_an_upcaster_must_return_a_value_with_a_json_form() -> None:
    odd = codec(Upcaster(Price, lambda _: object(), None, "odd"))
    with pytest.raises(NotDecodable, match="upcaster odd returned a value without a JSON form"):
        odd.decode(b"5", Price)


def test_a_value_without_an_upcaster_fails_as_before() -> None:
    with pytest.raises(NotDecodable, match="the annotation must describe the value"):
        codec().decode(b"5", Price)
    with pytest.raises(NotDecodable, match="the annotation must describe the value"):
        PRICES.decode(b'"five"', int)
    with pytest.raises(NotDecodable, match="more than one dataclass"):
        PRICES.decode(b"5", Price | Line)  # type: ignore[arg-type]
