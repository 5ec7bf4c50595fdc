"""The early type check refuses exactly the results that can't be decoded again."""

from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from perdure.authoring.values.result_types import impossible_types
from perdure.core.codec import JsonCodec
from perdure.core.errors import NotDecodable

VALUES: list[object] = [True, 7, 7.0, 7.5, "", "7", "YQ==", None, [], [7], ["a"], (), (7,), {}]
VALUES += [{"a": 7}, {7}, {"a"}, frozenset((7,)), frozenset("a"), str(UUID(int=7)), "2020-01-01"]


@dataclass
class Receipt:
    number: int = 7


class Size(IntEnum):
    SMALL = 7


PLAIN: list[Any] = [bool, int, float, str, None, list, list[int], list[str], set[int]]
PLAIN += [frozenset[int], tuple[int, ...], tuple[int], dict, dict[str, int], int | None]
PLAIN += [list[int] | str, Annotated[int, msgspec.Meta(description="a number")]]
OTHERS: list[Any] = [Any, object, bytes, UUID, Decimal, Size, Literal["7", 7], Receipt | None]


def is_readable(value: object, wanted: Any) -> bool:
    codec = JsonCodec()
    try:
        codec.decode(codec.encode(value), wanted)
    except NotDecodable:
        return False
    return True


@pytest.mark.parametrize("wanted", [*PLAIN, *OTHERS], ids=str)
def test_values_that_could_be_read_are_not_refused(wanted: Any) -> None:
    refused = impossible_types(wanted)
    assert [v for v in VALUES if type(v) in refused and is_readable(v, wanted)] == []


@pytest.mark.parametrize("wanted", PLAIN, ids=str)
def test_a_type_of_which_no_value_can_be_read_is_refused(wanted: Any) -> None:
    types = {type(value) for value in VALUES}
    readable = {type(value) for value in VALUES if is_readable(value, wanted)}
    assert impossible_types(wanted) & types == types - readable


@pytest.mark.parametrize("wanted", OTHERS, ids=str)
def test_annotations_without_plain_types_refuse_nothing_early(wanted: Any) -> None:
    assert impossible_types(wanted) == frozenset()
