"""Signals: typed values that clients and other runs send to a run."""

from contextlib import suppress
from typing import Any, Generic, TypeVar

from perdure.authoring.call import Composite, DurableOperation, Sleep, made
from perdure.authoring.context import Suspension, workflow_context
from perdure.authoring.definition import require_name
from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.values.storable import Unresolved, require_storable_annotation
from perdure.authoring.values.subclasses import classes_in, require_lossless
from perdure.core.codec import Codec, encode_named
from perdure.core.errors import InputError, NotDecodable
from perdure.core.journal.events import AwaitKind
from perdure.core.limits import MAX_NAME_LENGTH

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

    def receive(self, timeout: Duration | None = None) -> "DurableOperation[T]":
        """Consume the oldest unread signal of this name, or wait for the next one.

        Raises `TimeoutError` if none arrives within `timeout`.
        """
        if timeout is None:
            return made(Receive(self))
        return made(ReceiveInTime(self, milliseconds(timeout, "timeout")))

    def encode(self, codec: Codec, value: object) -> bytes:
        """The payload of a value. Refuses a value that is not of the signal's type."""
        require_lossless(f"the value of signal {self.name!r}", value, classes_in(self.of))
        payload = encode_named(codec, value, lambda: f"the value of signal {self.name!r}")
        try:
            codec.decode(payload, self.of)
        except NotDecodable as error:
            raise InputError(
                f"signal {self.name!r} can't carry a value of type {type(value).__qualname__!r} ({error.what})",
                "pass a value of the signal's type",
            ) from None
        return payload

    def __repr__(self) -> str:
        return f"Signal({self.name!r}, {getattr(self.of, '__name__', self.of)})"


def require_signal(given: object) -> Signal[Any]:
    """`given`, if it is a signal; raises `InputError` otherwise."""
    if not isinstance(given, Signal):
        raise InputError(f"{given!r} is not a signal", "pass perdure.Signal(name, type)")
    return given


class Receive(DurableOperation[T_co]):
    """Waits for a signal."""

    __slots__ = ("signal",)

    verb = "Signal.receive"
    kind = AwaitKind.SIGNAL

    def __init__(self, signal: Signal[T_co]) -> None:
        self.signal = signal

    @property
    def called(self) -> str:
        return f"{self.signal!r}.receive"


class ReceiveInTime(Composite[T_co]):
    """Waits for a signal or a timer, whichever comes first."""

    __slots__ = ("signal", "timeout_ms")

    def __init__(self, signal: Signal[T_co], timeout_ms: int) -> None:
        self.signal = signal
        self.timeout_ms = timeout_ms

    @property
    def called(self) -> str:
        return f"{self.signal!r}.receive"

    async def run(self) -> T_co:
        context = workflow_context(Receive.verb)
        received = context.begin(Receive(self.signal))
        if not received.is_settled:
            timer = context.begin(Sleep(self.timeout_ms))
            await Suspension((received, timer), AwaitKind.ANY)
            is_late = not received.is_settled
            context.abandon((received, timer))
            if is_late:
                raise TimeoutError(
                    f"no signal {self.signal.name!r} within {self.timeout_ms / 1000:g} s"
                )
        result: T_co = received.outcome()
        return result
