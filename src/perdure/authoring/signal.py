"""Signals: values that somebody outside sends to a run, typed at both ends."""

from typing import Any, Generic, TypeVar

from perdure.authoring.call import Composite, Operation, Sleep, made
from perdure.authoring.context import Wait, workflow_context
from perdure.authoring.definition import require_name
from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.subclasses import classes_in, require_whole
from perdure.core.codec import Codec
from perdure.core.errors import InputError, NotDecodable
from perdure.core.journal.events import AwaitKind
from perdure.core.limits import MAX_NAME_LENGTH

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_SIGNAL_NAME = MAX_NAME_LENGTH - len("signal:")


class Signal(Generic[T]):
    """A kind of signal: its name, and the type of its values."""

    def __init__(self, name: str, of: type[T]) -> None:
        self.name = require_name("signal", name, MAX_SIGNAL_NAME)
        self.of = of

    def receive(self, timeout: Duration | None = None) -> "Operation[T]":
        """Consume the oldest signal of this name, waiting for one if there is none.

        Raises `TimeoutError` if none came in time.
        """
        if timeout is None:
            return made(Receive(self))
        return made(ReceiveInTime(self, milliseconds(timeout, "timeout")))

    def encode(self, codec: Codec, value: object) -> bytes:
        """The payload of a value, if it is one that this signal carries."""
        require_whole(f"the value of signal {self.name!r}", value, classes_in(self.of))
        payload = codec.encode(value)
        try:
            codec.decode(payload, self.of)
        except NotDecodable as error:
            raise InputError(
                f"signal {self.name!r} can't carry {value!r:.200} ({error.what})",
                "pass a value of the signal's type",
            ) from None
        return payload

    def __repr__(self) -> str:
        return f"Signal({self.name!r}, {getattr(self.of, '__name__', self.of)})"


def require_signal(given: object) -> Signal[Any]:
    """The signal, if it is one."""
    if not isinstance(given, Signal):
        raise InputError(f"{given!r} is not a signal", "pass perdure.Signal(name, type)")
    return given


class Receive(Operation[T_co]):
    """Wait for a signal."""

    __slots__ = ("signal",)

    verb = "Signal.receive"
    kind = AwaitKind.SIGNAL

    def __init__(self, signal: Signal[T_co]) -> None:
        self.signal = signal

    @property
    def called(self) -> str:
        return f"{self.signal!r}.receive"


class ReceiveInTime(Composite[T_co]):
    """Wait for a signal or for a timer, whichever is first."""

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
            await Wait((received, timer), AwaitKind.ANY)
            is_late = not received.is_settled
            context.abandon((received, timer))
            if is_late:
                raise TimeoutError(
                    f"no signal {self.signal.name!r} within {self.timeout_ms / 1000:g} s"
                )
        result: T_co = received.outcome()
        return result
