"""Types that people use: each value comes back equal and of its type, and its bytes don't depend on the process."""

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from fractions import Fraction
from io import BytesIO
from ipaddress import IPv4Address, IPv6Network
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Generic, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import InputError
from perdure.authoring.values.storable import require_storable_annotation
from perdure.core.codec import JsonCodec
from perdure.core.errors import NotDecodable, NotEncodable

T = TypeVar("T")
codec = JsonCodec()


class Place(NamedTuple):
    x: int
    name: str = "here"


class Suit(Enum):
    HEARTS = "h"
    SPADES = "s"


@dataclass(frozen=True)
class Card:
    suit: Suit
    rank: int


@dataclass
class Box(Generic[T]):
    content: T


@attrs.frozen
class Bag:
    cards: frozenset[Card]


class Hand(msgspec.Struct):
    cards: set[Card]
    at: Path
    left: dict[int, set[Card]] = {}


places = st.builds(Place, st.integers(-9, 9), st.text(max_size=5))
cards = st.builds(Card, st.sampled_from(Suit), st.integers(1, 3))
paths = st.lists(st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True)).map(lambda p: Path("/", *p))

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    Path: paths,
    PurePosixPath: paths.map(PurePosixPath),
    PureWindowsPath: st.just(PureWindowsPath("c:/a/b")),
    ZoneInfo: st.sampled_from(["UTC", "Europe/Berlin", "Asia/Tokyo"]).map(ZoneInfo),
    IPv4Address: st.ip_addresses(v=4),
    IPv6Network: st.just(IPv6Network("fe80::/10")),
    Fraction: st.fractions(),
    Place: places,
    Box[Place]: st.builds(Box, places),
    Box[set[Card]]: st.builds(Box, st.sets(cards)),
    Bag: st.builds(Bag, st.frozensets(cards)),
    Hand: st.builds(
        Hand, st.sets(cards), paths, st.dictionaries(st.integers(0, 3), st.sets(cards))
    ),
    set[str]: st.sets(st.text(max_size=3)),
    set[Suit]: st.sets(st.sampled_from(Suit)),
    set[date | int]: st.sets(st.dates() | st.integers(0, 9)),
    frozenset[Card]: st.frozensets(cards),
    list[frozenset[Card]]: st.lists(st.frozensets(cards), max_size=3),
    dict[str, set[Card]]: st.dictionaries(st.text(max_size=3), st.sets(cards), max_size=3),
    tuple[set[Place], Path]: st.tuples(st.sets(places), paths),
    Path | None: st.none() | paths,
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_values_come_back(kind: Any) -> None:
    require_storable_annotation("a value", kind)

    @given(VALUES[kind])
    def check(value: Any) -> None:
        back = codec.decode(codec.encode(value), kind)
        assert back == value
        assert type(back) is type(value)

    check()


@given(st.lists(cards, max_size=8, unique=True), st.randoms(use_true_random=False))
def test_bytes_of_a_set_do_not_depend_on_its_order(given_cards: list[Card], random: Any) -> None:
    first = codec.encode({"set": set(given_cards)})
    random.shuffle(given_cards)
    assert codec.encode({"set": set(given_cards)}) == first


def test_bytes_of_a_set_are_the_same_in_every_process() -> None:
    code = (
        "from tests.core.test_stored_types import *\n"
        "print(codec.encode(Hand({Card(s, n) for s in Suit for n in range(20)}, Path('x'))).decode())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


class Mixed(Enum):
    ONE = 1
    TWO = "two"


@pytest.mark.parametrize(
    "kind",
    [
        set[frozenset[int]],
        set[tuple[frozenset[int], int]],
        Mixed,
        Card | Place | Bag,
        complex,
        date | str,
    ],
    ids=str,
)
def test_annotations_without_an_exact_form_are_refused(kind: Any) -> None:
    with pytest.raises(InputError, match="can't be stored"):
        require_storable_annotation("a value", kind)


NAMELESS = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + bytes(6) + b"UTC\0"
"""The data of a time zone."""

NOT_ENCODABLE: dict[str, Callable[[], object]] = {
    "a set with what has no form": lambda: {object()},
    "a time zone without a name": lambda: ZoneInfo.from_file(BytesIO(NAMELESS)),
    "keys that become one": lambda: {1: {Card(Suit.HEARTS, 1)}, "1": {Card(Suit.SPADES, 1)}},
    "NaN beside a set": lambda: [float("nan"), {Card(Suit.HEARTS, 1), Card(Suit.SPADES, 1)}],
}


@pytest.mark.parametrize("name", NOT_ENCODABLE)
def test_values_without_an_exact_form_are_refused(name: str) -> None:
    with pytest.raises(NotEncodable):
        codec.encode(NOT_ENCODABLE[name]())


@pytest.mark.parametrize(
    ("payload", "kind"),
    [(b'"Mars/Base"', ZoneInfo), (b'"1/0"', Fraction), (b"5", Path), (b'"a"', IPv4Address)],
)
def test_a_text_that_names_no_value_is_refused(payload: bytes, kind: Any) -> None:
    with pytest.raises(NotDecodable):
        codec.decode(payload, kind)
