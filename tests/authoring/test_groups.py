"""Exception groups: the group and each member are stored by the rules of single exceptions."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Self

import pytest

from perdure.authoring.values.failures import (
    MAX_LEVELS,
    MAX_MEMBERS,
    MAX_TRACEBACK,
    decode_failure,
    encode_failure,
)
from perdure.core.codec import JsonCodec
from perdure.core.errors import RunFailed, TaskFailed

codec = JsonCodec()

WHAT = "task 'charge' (step root.3)"


class Declined(Exception):
    def __init__(self, card: str) -> None:
        super().__init__(card)
        self.card = card


class Errors(ExceptionGroup[Exception]):
    """Its constructor takes other arguments than a group's."""

    exit_code: int

    def __new__(cls, errors: Sequence[Exception], exit_code: int) -> Self:
        self = super().__new__(cls, f"exit code: {exit_code}", errors)
        self.exit_code = exit_code
        return self

    def derive(self, excs: Sequence[Exception]) -> "Errors":  # type: ignore[override]
        return Errors(excs, self.exit_code)


class Tried(ExceptionGroup[Exception]):
    """Its constructor takes one argument more than it passes on."""

    def __new__(cls, message: str, errors: Sequence[Exception], _: int) -> Self:
        return super().__new__(cls, message, errors)

    def __init__(self, message: str, errors: Sequence[Exception], tries: int) -> None:
        super().__init__(message, errors)
        self.tries = tries

    def derive(self, excs: Sequence[Exception]) -> "Tried":  # type: ignore[override]
        return Tried(self.message, excs, self.tries)


class Plain(ExceptionGroup[Exception]):
    pass


class FirstKnown(ExceptionGroup[Exception]):
    """Attributes that its constructor computes from the members are computed again from the rebuilt ones."""

    def __init__(self, message: str, errors: Sequence[Exception]) -> None:
        super().__init__(message, errors)
        self.first = errors[0]


class OnlyDeclined(ExceptionGroup[Declined]):
    """Refuses members of other types, `TaskFailed` among them."""

    def __new__(cls, message: str, errors: Sequence[Exception]) -> Self:
        if not all(isinstance(error, Declined | Unstorable) for error in errors):
            raise TypeError("only declined cards")
        return super().__new__(cls, message, errors)  # type: ignore[arg-type]


class Aborted(BaseExceptionGroup[BaseException]):
    pass


class Unstorable(Exception):
    """It holds a value that can't be stored, and one that its constructor does not set."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.source = object()


def there_and_back(error: BaseException) -> Any:
    return decode_failure(codec, encode_failure(codec, error), what=WHAT)


def shape(error: BaseException) -> Any:
    """Type, args and attributes, all the way down."""
    if isinstance(error, BaseExceptionGroup):
        known = {k: v for k, v in vars(error).items() if k not in ("__notes__", "first")}
        return type(error), error.message, known, [shape(each) for each in error.exceptions]
    return type(error), error.args, {k: v for k, v in vars(error).items() if k != "__notes__"}


MEMBERS: list[Exception] = [ValueError("a", 1), Declined("visa"), OSError(2, "gone", "file")]


@pytest.mark.parametrize(
    "group",
    [
        ExceptionGroup("both", MEMBERS),
        ExceptionGroup("in a tuple", tuple(MEMBERS)),
        ExceptionGroup("", [KeyError(b"x")]),
        ExceptionGroup("outer", [ExceptionGroup("inner", MEMBERS), TypeError()]),
        Plain("plain", MEMBERS),
        Errors(MEMBERS, 7),
        Tried("tried", MEMBERS, 3),
        FirstKnown("known", MEMBERS),
        ExceptionGroup("all kinds", [Errors([Tried("x", [Plain("y", MEMBERS)], 2)], 1)]),
        OnlyDeclined("cards", [Declined("visa"), Declined("other")]),
    ],
    ids=str,
)
def test_group_is_rebuilt_with_its_members(group: ExceptionGroup[Any]) -> None:
    again = there_and_back(group)
    assert shape(again) == shape(group)
    assert str(again) == str(group)
    assert [type(arg) for arg in again.args] == [type(arg) for arg in group.args]
    assert shape(there_and_back(again)) == shape(group)


def test_group_attributes_derive_from_rebuilt_members() -> None:
    again = there_and_back(FirstKnown("known", MEMBERS))
    assert again.first is again.exceptions[0]


def test_rebuilt_group_is_split_by_its_class() -> None:
    again = there_and_back(Errors(MEMBERS, 7))
    declined, rest = again.split(Declined)
    assert (type(declined), declined.exit_code, len(declined.exceptions)) == (Errors, 7, 1)
    assert (type(rest), rest.exit_code, len(rest.exceptions)) == (Errors, 7, 2)


def test_member_that_can_not_be_rebuilt_is_text_and_the_others_are_caught_by_type() -> None:
    caught: list[Any] = []
    try:
        raise there_and_back(ExceptionGroup("both", [Unstorable("x"), Declined("visa")]))
    except* Declined as group:
        caught += group.exceptions
    except* TaskFailed as group:
        caught += group.exceptions
    declined, failed = caught
    assert shape(declined) == shape(Declined("visa"))
    assert failed.type_name == f"{__name__}:Unstorable"
    assert failed.message == "x"
    assert failed.what == f"{WHAT} failed with {__name__}:Unstorable: x"


def test_member_of_a_runs_group_that_can_not_be_rebuilt_is_a_failed_run() -> None:
    payload = encode_failure(codec, ExceptionGroup("x", [Unstorable("x")]))
    again: Any = decode_failure(codec, payload, what="run 'r'", kind=RunFailed)
    assert type(again.exceptions[0]) is RunFailed


def test_group_that_refuses_a_substitute_member_comes_back_as_text() -> None:
    again = there_and_back(OnlyDeclined("cards", [Unstorable("x")]))
    assert type(again) is TaskFailed
    assert again.type_name == f"{__name__}:OnlyDeclined"
    assert "Unstorable: x" in again.traceback


def test_base_exceptions_in_a_group_come_back_as_text_in_a_group_of_exceptions() -> None:
    group = BaseExceptionGroup(
        "all",
        [ValueError("a"), SystemExit(3), BaseExceptionGroup("in", [asyncio.CancelledError()])],
    )
    again = there_and_back(group)
    assert type(again) is ExceptionGroup
    assert again.message == "all"
    members: list[Any] = list(again.exceptions)
    value, left, inner = members
    assert shape(value) == shape(ValueError("a"))
    assert (type(left), left.type_name) == (TaskFailed, "builtins:SystemExit")
    assert type(inner) is ExceptionGroup
    assert members[2].exceptions[0].type_name == "asyncio.exceptions:CancelledError"


def test_group_class_that_is_no_exception_comes_back_as_text() -> None:
    assert type(there_and_back(Aborted("x", [SystemExit(3)]))) is TaskFailed


def test_each_member_has_its_own_traceback_as_a_note() -> None:
    def fail(error: Exception) -> Exception:
        try:
            raise error
        except Exception as raised:
            return raised

    again = there_and_back(
        fail(ExceptionGroup("both", [fail(ValueError("a")), fail(Declined("b"))]))
    )
    assert "both (2 sub-exceptions)" in again.__notes__[0]
    value, declined = again.exceptions
    assert "ValueError: a" in value.__notes__[0]
    assert "Declined" not in value.__notes__[0]
    assert "Declined: b" in declined.__notes__[0]


def test_members_share_the_text_limits_of_one_exception() -> None:
    members = [Unstorable("x" * 20_000) for _ in range(4)]
    stored = json.loads(encode_failure(codec, ExceptionGroup("x", members)))
    assert sum(len(each["traceback"]) for each in stored["members"]) <= MAX_TRACEBACK
    assert [len(each["message"]) for each in stored["members"]] == [2_500] * 4
    assert all(each["message"].endswith("…") for each in stored["members"])


def nested(levels: int) -> Exception:
    error: Exception = ValueError("x")
    for level in range(levels):
        error = ExceptionGroup(str(level), [error])
    return error


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        pytest.param(nested(MAX_LEVELS - 1), ExceptionGroup, id="deep"),
        pytest.param(nested(MAX_LEVELS), TaskFailed, id="too deep"),
        pytest.param(nested(100_000), TaskFailed, id="much too deep"),
        pytest.param(
            ExceptionGroup("x", [ValueError(n) for n in range(MAX_MEMBERS)]),
            ExceptionGroup,
            id="large",
        ),
        pytest.param(
            ExceptionGroup("x", [ValueError(n) for n in range(MAX_MEMBERS + 1)]),
            TaskFailed,
            id="too large",
        ),
        pytest.param(
            ExceptionGroup("x", [ValueError("y" * 30_000) for _ in range(100)]),
            TaskFailed,
            id="too long",
        ),
    ],
)
def test_groups_beyond_the_bounds_come_back_as_text(error: Exception, wanted: type) -> None:
    assert type(there_and_back(error)) is wanted


def test_members_whose_attributes_are_hostile_do_not_break_the_group() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise SystemExit(1)

    again = there_and_back(ExceptionGroup("x", [Hostile(), ValueError("y")]))
    assert [type(each) for each in again.exceptions] == [TaskFailed, ValueError]


@pytest.mark.parametrize("place", [-7, 5, 0])
def test_damaged_group_comes_back_as_text(place: int) -> None:
    stored = json.loads(encode_failure(codec, ExceptionGroup("x", [ValueError("y")])))
    payload = json.dumps(stored | {"members_at": place}).encode()
    assert type(decode_failure(codec, payload, what=WHAT)) is TaskFailed


def test_plain_exception_is_stored_as_before_there_were_groups() -> None:
    stored = json.loads(encode_failure(codec, ValueError("x")))
    assert stored.keys() == {"type", "message", "traceback", "args"}
