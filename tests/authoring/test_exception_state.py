import json
import logging
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from perdure.authoring.values.failures import decode_failure, encode_failure
from perdure.core.codec import JsonCodec
from perdure.core.errors import TaskFailed

codec = JsonCodec()


class ApiError(Exception):
    """Takes more than it passes on."""

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class Http(Exception):
    """Takes other arguments than it passes on."""

    def __init__(self, status: int) -> None:
        super().__init__("http error")
        self.status = status


class Keyword(Exception):
    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class Required(Exception):
    """Can't be called with its args."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


@dataclass
class Declined(Exception):
    code: int = 0


@dataclass(frozen=True)
class Frozen(Exception):
    code: int = 0


class Slotted(Exception):
    __slots__ = ("never", "status")

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class Derives(Exception):
    """Its constructor sets an attribute that can't be stored."""

    log: ClassVar[logging.Logger] = logging.getLogger()

    def __init__(self, amount: str) -> None:
        super().__init__(amount)
        self.amount = Decimal(amount)
        self.logger = self.log


class Os(OSError):
    def __init__(self, number: int, service: str) -> None:
        super().__init__(number, f"{service} is down")
        self.service = service


class Exits(Exception):
    def __init__(self, *args: object) -> None:
        if args:
            raise SystemExit
        super().__init__("again")


class Grows(Exception):
    def __init__(self, *args: object) -> None:
        super().__init__("more", *args)


class Library(Exception):
    def __init__(self, message: str, connection: object = None) -> None:
        super().__init__(message)
        self._connection = connection
        self.message = message


class Holder(Exception):
    def __init__(self, message: str, held: object = None) -> None:
        super().__init__(message)
        self.held = held


class SlottedHolder(Exception):
    __slots__ = ("_held",)

    def __init__(self, message: str, held: object = None) -> None:
        super().__init__(message)
        self._held = held


def there_and_back(error: BaseException) -> Exception:
    return decode_failure(codec, encode_failure(codec, error), what="task 'a'")


def changed() -> Exception:
    error = KeyError("x")
    error.retry_after = [1, {"a": None}]  # type: ignore[attr-defined]
    return error


def attributes(error: BaseException) -> dict[str, Any]:
    found = {name: value for name, value in vars(error).items() if name != "__notes__"}
    for name in ("status", "name", "path", "errno", "strerror", "filename", "filename2"):
        found[name] = getattr(error, name, None)
    return found


def json_error() -> Exception:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        ApiError("gone", 404),
        Http(404),
        Keyword("x", retryable=True),
        Required(code=3),
        Declined(code=51),
        Frozen(code=51),
        Slotted("gone", 404),
        Derives("1.5"),
        Os(5, "mail"),
        Exits(),
        Grows("x"),
        changed(),
        json_error(),
        ImportError("x", name="a", path="b"),
        NameError("x", name="a"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_attributes_come_back_with_the_exception(error: Exception) -> None:
    again = there_and_back(error)
    assert type(again) is type(error)
    assert again.args == error.args
    assert str(again) == str(error)
    assert attributes(again) == attributes(error)


def test_slot_that_was_never_set_is_not_set() -> None:
    assert not hasattr(there_and_back(Slotted("gone", 404)), "never")


def test_attribute_that_the_interpreter_looked_for_comes_back_without_its_object() -> None:
    with pytest.raises(AttributeError) as caught:
        object().missing  # type: ignore[attr-defined] # noqa: B018
    again = there_and_back(caught.value)
    assert isinstance(again, AttributeError)
    assert (again.name, again.obj) == ("missing", None)


@pytest.mark.parametrize(
    "error",
    [
        Holder("x", object()),
        Holder("x", float("nan")),
        Holder("x", {1: 2}),
        SlottedHolder("x", object()),
    ],
)
def test_exception_with_an_attribute_that_can_not_be_stored_comes_back_as_text(
    error: Exception,
) -> None:
    again = there_and_back(error)
    assert type(again) is TaskFailed
    assert "JSON-like" in again.remedy


def test_attribute_that_was_deleted_is_missing_again() -> None:
    error = Holder("x")
    del error.held
    again = there_and_back(error)
    assert type(again) is Holder
    assert not hasattr(again, "held")


def test_private_attribute_that_can_not_be_stored_is_missing_and_not_wrong() -> None:
    again = there_and_back(Library("lost", object()))
    assert isinstance(again, Library)
    assert again.message == "lost"
    assert not hasattr(again, "_connection")


def test_failure_that_was_stored_without_attributes_is_read() -> None:
    payload = codec.encode(
        {
            "type": f"{__name__}:ApiError",
            "message": "gone",
            "traceback": "t",
            "args": ["gone"],
        }
    )
    again = decode_failure(codec, payload, what="task 'a'")
    assert isinstance(again, ApiError)
    assert (again.args, again.status) == (("gone",), 500)


def test_plain_exception_is_stored_with_its_args_only() -> None:
    found = json.loads(encode_failure(codec, ValueError("x")))
    assert found.keys() == {"type", "message", "traceback", "args"}


def test_advice_for_a_builtin_does_not_suggest_to_define_it() -> None:
    again = there_and_back(ValueError(object()))
    assert isinstance(again, TaskFailed)
    assert "define" not in again.remedy
    assert "JSON-like" in again.remedy


def test_untagged_failure_keeps_dicts_that_look_like_tags() -> None:
    args = [{"$tuple": [1]}]
    payload = codec.encode(
        {"type": "builtins:ValueError", "message": "m", "traceback": "t", "args": args}
    )
    assert decode_failure(codec, payload, what="task 'a'").args == tuple(args)
