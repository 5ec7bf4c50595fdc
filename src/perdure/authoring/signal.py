"""Signals: typed values that clients and other runs send to a run."""

from contextlib import suppress
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from perdure.authoring.call import Composite, DurableOperation, Sleep, made
from perdure.authoring.context import Suspension, workflow_context
from perdure.authoring.definition import require_name
from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.texts import require_user_text
from perdure.authoring.values.schema import schema_text
from perdure.authoring.values.storable import Unresolved, require_storable_annotation
from perdure.authoring.values.subclasses import classes_in, require_lossless
from perdure.core.codec import Codec, encode_named
from perdure.core.errors import InputError, NotDecodable
from perdure.core.ids import Guid
from perdure.core.journal.events import AwaitKind
from perdure.core.limits import MAX_ASK_BYTES, MAX_NAME_LENGTH, MAX_SCHEMA_BYTES

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_SIGNAL_NAME = MAX_NAME_LENGTH - len("signal:")


class Signal(Generic[T]):
    """A signal: its name and the type of its values."""

    def __init__(self, name: str, of: type[T]) -> None:
        self.name = require_name("signal", name, MAX_SIGNAL_NAME)
        with suppress(Unresolved):  # an annotation names a class that is defined later
            require_storable_annotation(f"signal {name!r}", of)
        self.of = of

    def receive(
        self, timeout: Duration | None = None, *, ask: str | None = None, who: str | None = None
    ) -> "DurableOperation[T]":
        """Consume the oldest unread signal of this name, or wait for the next one.

        Raises `TimeoutError` if none arrives within `timeout`. `ask` is what a person should see who answers, and `who`
        is the person or group: `waits`, `describe` and `explain` show both while the run waits.
        """
        return receiving(Receive(self, prompt_of(ask, who)), timeout)

    def encode(self, codec: Codec, value: object) -> bytes:
        """The payload of a value. Refuses a value that is not of the signal's type."""
        return encode_checked(codec, value, self.of, f"signal {self.name!r}")

    @cached_property
    def schema(self) -> str | None:
        """The JSON Schema of the values; `None` if there is none, or if it is too long for a journal."""
        return schema_text(self.of, MAX_SCHEMA_BYTES)

    def __repr__(self) -> str:
        return f"Signal({self.name!r}, {getattr(self.of, '__name__', self.of)})"


def require_signal(given: object) -> Signal[Any]:
    """`given`, if it is a signal; raises `InputError` otherwise."""
    if not isinstance(given, Signal):
        raise InputError(f"{given!r} is not a signal", "pass perdure.Signal(name, type)")
    return given


class Prompt(NamedTuple):
    """What a person should see while a run waits for a signal, and who should answer."""

    ask: str
    who: str | None = None


def prompt_of(ask: object, who: object) -> Prompt | None:
    if ask is None and who is None:
        return None
    if ask is None:
        raise InputError(f"who = {who!r} without ask", "pass ask=, the text that the person sees")
    text = require_user_text("what a person is asked", ask, MAX_ASK_BYTES)
    return Prompt(text, None if who is None else require_user_text("who is asked", who))


def encode_checked(codec: Codec, value: object, of: Any, carrier: str) -> bytes:
    """The payload of a value of type `of`. Raises `InputError` for any other value. `carrier` names what carries it."""
    require_lossless(f"the value of {carrier}", value, classes_in(of))
    payload = encode_named(codec, value, lambda: f"the value of {carrier}")
    try:
        codec.decode(payload, of)
    except NotDecodable as error:
        raise InputError(
            f"{carrier} can't carry a value of type {type(value).__qualname__!r} ({error.what})",
            f"pass a value of the type of {carrier}",
        ) from None
    return payload


class Receive(DurableOperation[T_co]):
    """Waits for a signal."""

    __slots__ = ("prompt", "signal")

    verb = "Signal.receive"
    noun = "signal"
    kind = AwaitKind.SIGNAL

    def __init__(self, signal: Signal[Any], prompt: Prompt | None = None) -> None:
        self.signal = signal
        self.prompt = prompt

    @property
    def called(self) -> str:
        return f"{self.signal!r}.receive"

    def received(self, value: Any, guid: Guid | None) -> T_co:  # noqa: ARG002 - a request needs the GUID
        """What the program gets for a signal with this value."""
        result: T_co = value
        return result


def receiving(receive: Receive[T_co], timeout: Duration | None) -> DurableOperation[T_co]:
    """The operation that waits for a signal, at most for `timeout`."""
    if timeout is None:
        return made(receive)
    return made(ReceiveInTime(receive, milliseconds(timeout, "timeout")))


class ReceiveInTime(Composite[T_co]):
    """Waits for a signal or a timer, whichever comes first."""

    __slots__ = ("receive", "timeout_ms")

    def __init__(self, receive: Receive[T_co], timeout_ms: int) -> None:
        self.receive = receive
        self.timeout_ms = timeout_ms

    @property
    def called(self) -> str:
        return self.receive.called

    async def run(self) -> T_co:
        receive = self.receive
        context = workflow_context(receive.verb)
        received = context.begin(receive)
        if not received.is_settled:
            timer = context.begin(Sleep(self.timeout_ms))
            await Suspension((received, timer), AwaitKind.ANY)
            is_late = not received.is_settled
            context.abandon((received, timer))
            if is_late:
                raise TimeoutError(
                    f"no {receive.noun} {receive.signal.name!r} within {self.timeout_ms / 1000:g} s"
                )
        result: T_co = received.outcome()
        return result
