import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.authoring.values.failures import (
    MAX_MESSAGE,
    MAX_TRACEBACK,
    decode_failure,
    encode_failure,
)
from perdure.core import errors
from perdure.core.codec import JsonCodec
from perdure.core.errors import (
    IllegalAppend,
    InvariantViolation,
    KeyReused,
    NotDecodable,
    PerdureError,
    RunFailed,
    TaskFailed,
)

codec = JsonCodec()

WHAT = "task 'charge' (step root.3)"


class Declined(Exception):
    def __init__(self, card: str, cents: int) -> None:
        super().__init__(card, cents)
        self.card = card
        self.cents = cents

    def __str__(self) -> str:
        return f"{self.card} has no {self.cents}"


class Outer:
    class Inner(ValueError):
        pass


class TakesOther(Exception):
    """Its args do not rebuild it: the constructor takes other arguments. And it holds a value that can't be stored."""

    def __init__(self, number: int) -> None:
        super().__init__(f"number {number}")
        self.source = iter(range(number))


class SaysMore(Exception):
    """Its args rebuild it, but not its text."""

    extra: ClassVar[dict[int, str]] = {}

    def __str__(self) -> str:
        return f"{self.args} {self.extra.get(id(self))}"


class Grows(Exception):
    """Neither its constructor nor `__new__` gives its text again."""

    def __init__(self, *args: object) -> None:
        super().__init__("more", *args)

    def __str__(self) -> str:
        return str(id(self))


class Shifty(Exception):
    """Constructing it gives another class."""

    def __new__(cls, *args: Any) -> Any:
        return ValueError(*args)


class BadStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class BadRepr(BadStr):
    def __repr__(self) -> str:
        raise SystemExit


class BadArgs(Exception):
    @property
    def args(self) -> NoReturn:  # type: ignore[override]
        raise KeyError("args")


class BadAttributes(Exception):
    def __getattribute__(self, name: str) -> NoReturn:
        raise RuntimeError(name)


class BadMeta(type):
    @property
    def __module__(cls) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("no module")


class BadClass(Exception, metaclass=BadMeta):
    pass


class Chatty(Exception):
    def __str__(self) -> str:
        return "\ud800" * 50_000


class Quits(Exception):
    def __init__(self, *args: object) -> None:
        if args == ("again",):
            raise SystemExit
        super().__init__("again")


@dataclass(frozen=True)
class Frozen(Exception):
    text: str

    def __post_init__(self) -> None:
        Exception.__init__(self, self.text)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def stored(error: BaseException) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_failure(codec, error))
    return found


def there_and_back(error: BaseException) -> Exception:
    return decode_failure(codec, encode_failure(codec, raised(error)), what=WHAT)


def is_same(one: BaseException, other: BaseException) -> bool:
    return type(one) is type(other) and one.args == other.args and str(one) == str(other)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ValueError("x"), id="builtin"),
        pytest.param(ValueError(), id="no arguments"),
        pytest.param(KeyError("x"), id="key error"),
        pytest.param(ValueError(1, 2.5, None, True, ["a", {"b": []}], 2**70), id="plain values"),
        pytest.param(Declined("visa", 5), id="constructor"),
        pytest.param(Outer.Inner("x"), id="nested class"),
        pytest.param(OSError("x"), id="os error of text"),
        pytest.param(OSError(errno.ENOENT, "no"), id="os error of number"),
        pytest.param(OSError(errno.ENOENT, "no", "a"), id="os error of file"),
        pytest.param(OSError(errno.EXDEV, "no", "a", None, "b"), id="os error of two files"),
        pytest.param(TimeoutError(), id="timeout"),
        pytest.param(NotDecodable("what", "remedy"), id="ours"),
        pytest.param(KeyReused("r_1", "what", "remedy"), id="ours with a run"),
        pytest.param(IllegalAppend("guard", "what", "remedy"), id="ours with a guard"),
        pytest.param(TaskFailed("what", "remedy", "m:T", "message", "trace"), id="ours with text"),
        pytest.param(InvariantViolation(("JS-3",), "what", "remedy"), id="ours with a tuple"),
        pytest.param(ValueError((1, 2)), id="tuple"),
        pytest.param(ValueError([(1, (b"x", {"a": ()}))]), id="tuples inside"),
        pytest.param(ValueError({"$tuple": [1]}, {"$dict": {"$bytes": 1}}), id="like a tag"),
        pytest.param(ValueError(b"\xff"), id="bytes"),
        pytest.param(UnicodeDecodeError("utf8", b"\xff", 0, 1, "bad"), id="unicode"),
        pytest.param(SyntaxError("bad", ("file.py", 1, 2, "x y", 1, 3)), id="syntax"),
        pytest.param(OSError(errno.ENOENT, "no", b"\xff"), id="os error of a file of bytes"),
        pytest.param(msgspec.ValidationError("x"), id="library"),
        pytest.param(asyncio.QueueFull(), id="standard library"),
    ],
)
def test_exception_is_rebuilt_as_itself(error: Exception) -> None:
    again = there_and_back(error)
    assert again is not error
    assert is_same(again, error)


def test_attributes_that_the_constructor_sets_come_back() -> None:
    declined = there_and_back(Declined("visa", 5))
    assert isinstance(declined, Declined)
    assert (declined.card, declined.cents) == ("visa", 5)
    missing = there_and_back(OSError(errno.EXDEV, "no", "a", None, "b"))
    assert isinstance(missing, OSError)
    assert (missing.errno, missing.filename, missing.filename2) == (errno.EXDEV, "a", "b")


def test_missing_file_comes_back_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "none").read_text()
    again = there_and_back(caught.value)
    assert is_same(again, caught.value)
    assert isinstance(again, FileNotFoundError)
    assert again.filename == str(tmp_path / "none")


OURS = [
    found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, PerdureError)
]


@pytest.mark.parametrize("cls", OURS)
def test_each_error_of_perdure_is_rebuilt(cls: type[PerdureError]) -> None:
    count = cls.__init__.__code__.co_argcount - 1
    error = cls(*(f"text {index}" for index in range(count)))
    assert is_same(there_and_back(error), error)


tags = st.sampled_from(["$", "$tuple", "$bytes", "$dict"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.text("x\u00e9\x00", max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("xyz", max_size=3) | tags, inner)
    ),
    max_leaves=8,
)


@given(st.lists(values, max_size=4))
def test_any_plain_arguments_come_back(args: list[Any]) -> None:
    error = LookupError(*args)
    again = there_and_back(error)
    assert type(again) is LookupError
    assert repr(again.args) == repr(error.args) or again.args == error.args


def local_class() -> type[Exception]:
    class Local(Exception):
        pass

    return Local


def impostor() -> Exception:
    """A class that goes by the name of another."""
    named: type[Exception] = type("ValueError", (Exception,), {"__module__": "builtins"})
    return named("x")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ValueError({1: "a"}), id="int key"),
        pytest.param(ValueError({1}), id="set"),
        pytest.param(ValueError(float("nan")), id="nan"),
        pytest.param(ValueError(object()), id="object"),
        pytest.param(ValueError(errno), id="module"),
        pytest.param(ValueError(type("Text", (str,), {})("x")), id="str subclass"),
        pytest.param(ValueError({type("Text", (str,), {})("x"): 1}), id="str subclass key"),
        pytest.param(ValueError("\ud800"), id="lone surrogate"),
        pytest.param(ValueError("x" * 3_000_000), id="too large"),
        pytest.param(ValueError("x" * (2 * 1024 * 1024 - 100)), id="too large with its text"),
        pytest.param(TakesOther(1), id="other constructor"),
        pytest.param(Grows("x"), id="other text"),
        pytest.param(local_class()("x"), id="local class"),
        pytest.param(impostor(), id="another class of that name"),
        pytest.param(StopIteration(1), id="stop iteration"),
        pytest.param(KeyboardInterrupt("x"), id="interrupt"),
        pytest.param(SystemExit(3), id="exit"),
        pytest.param(asyncio.CancelledError(), id="cancelled"),
    ],
)
def test_exception_that_would_come_back_changed_comes_back_as_text(error: BaseException) -> None:
    assert "args" not in stored(error)
    again = there_and_back(error)
    assert type(again) is TaskFailed
    assert again.type_name == f"{type(error).__module__}:{type(error).__qualname__}"
    assert again.what.startswith(f"{WHAT} failed with {again.type_name}")
    text = str(error).encode(errors="backslashreplace").decode()
    assert again.message[: MAX_MESSAGE - 1] == text[: MAX_MESSAGE - 1]


def test_exception_whose_text_would_change_comes_back_as_text() -> None:
    error = SaysMore("x")
    assert "args" in stored(error)
    error.extra[id(error)] = "and more"
    assert "args" not in stored(error)
    again = there_and_back(error)
    assert isinstance(again, TaskFailed)
    assert again.message == "('x',) and more"


class Rounding(JsonCodec):
    """A codec that knows one kind of number only."""

    def decode(self, payload: bytes, wanted: Any) -> Any:  # noqa: ARG002 - it gives what JSON has
        return json.loads(payload, parse_int=float)


def test_arguments_that_the_codec_returns_as_equals_of_another_type_are_not_kept() -> None:
    assert b"args" not in encode_failure(Rounding(), ValueError([1]))
    assert b"args" in encode_failure(Rounding(), ValueError([1.0]))


def test_fallback_says_what_failed_and_how() -> None:
    error = decode_failure(
        codec, encode_failure(codec, raised(TakesOther(1))), what=WHAT, kind=RunFailed
    )
    assert type(error) is RunFailed
    assert error.what == f"{WHAT} failed with {__name__}:TakesOther: number 1"
    assert "module level" in error.remedy
    assert error.message == "number 1"
    assert error.traceback.startswith("Traceback (most recent call last):")
    assert "in raised" in error.traceback


def test_fallback_without_a_message_ends_with_the_type() -> None:
    error = decode_failure(codec, encode_failure(codec, SystemExit()), what=WHAT)
    assert isinstance(error, TaskFailed)
    assert error.what == f"{WHAT} failed with builtins:SystemExit"


def test_rebuilt_exception_carries_the_original_traceback_as_a_note() -> None:
    (note,) = there_and_back(Declined("visa", 5)).__notes__
    assert note.startswith(f"{WHAT} failed with:\nTraceback (most recent call last):")
    assert "in raised" in note
    assert note.rstrip().endswith("Declined: visa has no 5")


def test_rebuilt_exception_that_takes_no_notes_is_still_itself() -> None:
    error = Frozen("x")
    again = decode_failure(codec, encode_failure(codec, error), what=WHAT)
    assert is_same(again, error)


def test_causes_and_contexts_are_in_the_traceback() -> None:
    def cause() -> NoReturn:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    def context() -> NoReturn:
        try:
            cause()
        except ValueError:
            raise TypeError("third")  # noqa: B904

    with pytest.raises(TypeError) as caught:
        context()
    text = stored(caught.value)["traceback"]
    assert text.index("KeyError: 'first'") < text.index("direct cause")
    assert text.index("ValueError: second") < text.index("During handling")
    assert text.index("During handling") < text.index("TypeError: third")


def test_members_of_a_group_are_in_the_traceback() -> None:
    group = BaseExceptionGroup("both", [raised(KeyError("a")), raised(Declined("visa", 5))])
    text = stored(raised(group))["traceback"]
    assert "KeyError: 'a'" in text
    assert "visa has no 5" in text


def test_frames_of_perdure_are_not_in_the_traceback() -> None:
    with pytest.raises(NotDecodable) as caught:
        codec.decode(b"{", int)
    text = stored(caught.value)["traceback"]
    assert "codec.py" not in text
    assert "test_failures.py" in text
    assert "ValidationError" in text


def recursing(depth: int) -> NoReturn:
    if depth:
        recursing_too(depth)
    raise ValueError("deepest")


def recursing_too(depth: int) -> NoReturn:
    recursing(depth - 1)


def test_long_traceback_keeps_its_end() -> None:
    with pytest.raises(ValueError, match="deepest") as caught:
        recursing(150)
    text = stored(caught.value)["traceback"]
    assert len(text) == MAX_TRACEBACK
    assert text.endswith("ValueError: deepest\n")


def test_long_message_keeps_its_start() -> None:
    message = stored(ValueError("ab" * MAX_MESSAGE))["message"]
    assert len(message) == MAX_MESSAGE
    assert message.startswith("abab")
    assert message.endswith("…")
    assert stored(ValueError("x" * MAX_MESSAGE))["message"] == "x" * MAX_MESSAGE


characters = (st.integers(0, 0x10FFFF) | st.integers(0xD800, 0xDFFF)).map(chr)


@given(st.text(characters))
def test_any_message_is_stored(text: str) -> None:
    message = stored(raised(ValueError(text)))["message"]
    assert message == text.encode(errors="backslashreplace").decode()
    again = there_and_back(ValueError(text))
    assert str(again) == text or isinstance(again, TaskFailed)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(BadStr("x"), "BadStr('x')", id="str raises"),
        pytest.param(
            BadRepr("x"),
            f"an exception of type {__name__}:BadRepr without a readable text",
            id="repr raises",
        ),
        pytest.param(BadArgs("x"), "x", id="args raise"),
        pytest.param(BadAttributes("x"), "x", id="attributes raise"),
        pytest.param(BadClass("x"), "x", id="class raises"),
        pytest.param(Chatty(), "\\ud800" * 1666 + "\\ud…", id="long text of lone surrogates"),
    ],
)
def test_hostile_exception_is_stored(error: Exception, message: str) -> None:
    found = stored(raised(error))
    assert found["message"] == message
    assert found["traceback"]
    assert len(found["traceback"]) <= MAX_TRACEBACK
    assert isinstance(decode_failure(codec, encode_failure(codec, error), what=WHAT), Exception)


def test_hostile_name_is_stored() -> None:
    named = type("x" * 2_000, (Exception,), {"__module__": "\ud800"})
    assert stored(named("x"))["type"].startswith("\\ud800:xxx")
    assert len(stored(named("x"))["type"]) <= 1_000


def test_class_whose_instances_change_comes_back_as_text() -> None:
    payload = codec.encode(
        {"type": f"{__name__}:Shifty", "message": "m", "traceback": "t", "args": ["x"]}
    )
    assert type(decode_failure(codec, payload, what=WHAT)) is TaskFailed


def test_erased_payload_says_so() -> None:
    error = decode_failure(codec, None, what=WHAT, kind=RunFailed)
    assert type(error) is RunFailed
    assert error.what == f"{WHAT} failed, and its error was erased"


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"1", b"{}", b'{"type":1,"message":"","traceback":""}', b"\xff"]
)
def test_damaged_payload_says_so(payload: bytes) -> None:
    error = decode_failure(codec, payload, what=WHAT)
    assert type(error) is TaskFailed
    assert error.what.startswith(f"{WHAT} failed, and its error can't be read (")
    assert "damaged" in error.remedy


def payload_of(type_name: str, args: list[Any]) -> bytes:
    return codec.encode({"type": type_name, "message": "said", "traceback": "trace", "args": args})


@pytest.mark.parametrize(
    ("type_name", "args"),
    [
        pytest.param("no_such_module:Error", [], id="no such module"),
        pytest.param("builtins:NoSuchError", [], id="no such class"),
        pytest.param("builtins:ValueError.mro", [], id="method"),
        pytest.param("os:system", ["exit 1"], id="function"),
        pytest.param("subprocess:Popen", [["true"]], id="class that is no exception"),
        pytest.param("builtins:SystemExit", [3], id="exit"),
        pytest.param("builtins:BaseException", [], id="base exception"),
        pytest.param("builtins:ExceptionGroup", ["x", []], id="group"),
        pytest.param(f"{__name__}:Declined", ["one"], id="arguments that do not fit"),
        pytest.param(f"{__name__}:Quits", ["again"], id="constructor that exits"),
        pytest.param("", [], id="empty"),
        pytest.param(":ValueError", [], id="no module"),
        pytest.param("..os:error", [], id="relative"),
        pytest.param("ValueError", [], id="no colon"),
        pytest.param("a\x00b:Error", [], id="nul"),
    ],
)
def test_type_that_can_not_be_rebuilt_here_comes_back_as_text(
    type_name: str, args: list[Any]
) -> None:
    error = decode_failure(codec, payload_of(type_name, args), what=WHAT)
    assert type(error) is TaskFailed
    assert (error.type_name, error.message, error.traceback) == (type_name, "said", "trace")


@pytest.fixture
def module_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("stored_"):
            del sys.modules[name]


def test_module_is_imported_if_it_is_not_yet(module_path: Path) -> None:
    (module_path / "stored_errors.py").write_text("class Lost(Exception): pass\n")
    error = decode_failure(codec, payload_of("stored_errors:Lost", ["x"]), what=WHAT)
    assert f"{type(error).__module__}:{type(error).__qualname__}" == "stored_errors:Lost"
    assert error.args == ("x",)


@pytest.mark.parametrize("body", ["raise SystemExit(3)", "1 / 0", "syntax error"])
def test_module_that_can_not_be_imported_gives_text(module_path: Path, body: str) -> None:
    (module_path / "stored_broken.py").write_text(body)
    error = decode_failure(codec, payload_of("stored_broken:Lost", ["x"]), what=WHAT)
    assert type(error) is TaskFailed


def test_storing_imports_nothing(module_path: Path) -> None:
    (module_path / "stored_untouched.py").write_text("class Lost(Exception): pass\n")
    lost = type("Lost", (Exception,), {"__module__": "stored_untouched"})
    assert "args" not in stored(lost("x"))
    assert "stored_untouched" not in sys.modules


def test_class_of_the_main_program_comes_back_there() -> None:
    program = """
class Mine(Exception): pass
from perdure.authoring.values.failures import decode_failure, encode_failure
from perdure.core.codec import JsonCodec
error = decode_failure(JsonCodec(), encode_failure(JsonCodec(), Mine(1)), what="task")
assert type(error) is Mine and error.args == (1,), repr(error)
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ), timeout=60)


def test_failure_of_a_failure_keeps_both_tracebacks() -> None:
    first = there_and_back(Declined("visa", 5))
    again = decode_failure(codec, encode_failure(codec, raised(first)), what="run r_1")
    assert isinstance(again, Declined)
    (note,) = again.__notes__
    assert note.startswith("run r_1 failed with:")
    assert f"{WHAT} failed with:" in note


def test_deeply_nested_arguments_are_stored_or_left_out_but_never_break() -> None:
    for depth in (10, 500, 900, 1_000, 100_000):
        nested: list[Any] = []
        for _ in range(depth):
            nested = [nested]
        error = LookupError()
        error.args = (nested,)
        found = msgspec.json.decode(encode_failure(codec, error))
        assert found["type"] == "builtins:LookupError"
