"""How upcasters are written."""

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import InputError, upcaster
from perdure.authoring.values.upcaster import reading_old_shapes
from perdure.core.codec import JsonCodec


@dataclass
class Shelf:
    books: list[str]


@dataclass
class Room:
    name: str


def from_text(old: str) -> dict[str, Any]:
    return {"books": [old]}


def test_upcaster_decorator_returns_the_function() -> None:
    assert upcaster(Shelf)(from_text) is from_text
    assert reading_old_shapes(JsonCodec()).decode(b'"Emma"', Shelf) == Shelf(["Emma"])


def test_registering_the_same_function_again_replaces_it() -> None:
    for _ in range(2):

        @upcaster(Room)
        def named(old: str) -> dict[str, Any]:
            return {"name": old}

    assert reading_old_shapes(JsonCodec()).decode(b'"hall"', Room) == Room("hall")


def test_several_upcasters_of_a_type_need_a_condition_each() -> None:
    @dataclass
    class Door:
        width: int

    @upcaster(Door)
    def first(old: int) -> dict[str, Any]:
        return {"width": old}

    with pytest.raises(InputError, match="give each one `when=`"):

        @upcaster(Door, when=lambda old: isinstance(old, str))
        def second(old: str) -> dict[str, Any]:
            return {"width": int(old)}

    codec = reading_old_shapes(JsonCodec())
    assert codec.decode(b"7", Door) == Door(7)


@pytest.mark.parametrize("of", [int, str, list, dict, None, 7, "Order", object])
def test_only_importable_types_may_have_an_upcaster(of: Any) -> None:
    with pytest.raises(InputError, match="can't have an upcaster"):
        upcaster(of)


def test_only_functions_may_be_upcasters() -> None:
    with pytest.raises(InputError, match="is not a function"):
        upcaster(Room)(7)  # type: ignore[type-var]


def test_a_codec_is_wrapped_once() -> None:
    codec = reading_old_shapes(JsonCodec())
    assert reading_old_shapes(codec) is codec
