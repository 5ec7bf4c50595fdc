"""Requests: typed questions that clients put to a run, and the replies that the run gives."""

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from perdure.authoring.call import DurableOperation
from perdure.authoring.context import workflow_context
from perdure.authoring.durations import Duration
from perdure.authoring.signal import Prompt, Receive, Signal, encode_checked, prompt_of, receiving
from perdure.authoring.texts import require_user_text
from perdure.authoring.values.storable import Unresolved, require_storable_annotation
from perdure.core.codec import Codec
from perdure.core.errors import InputError
from perdure.core.ids import Guid
from perdure.core.limits import MAX_ASK_BYTES

T = TypeVar("T")
R = TypeVar("R")


class Request(Generic[T, R]):
    """A request: its name, the type of its values and the type of its replies.

    A client asks with `handle.ask`; the workflow takes what was asked with `receive`, and replies. It travels as the
    signal `signal`.
    """

    def __init__(self, name: str, of: type[T], reply: type[R]) -> None:
        self.signal: Signal[T] = Signal(name, of)
        with suppress(Unresolved):  # as in Signal
            require_storable_annotation(f"the reply to request {name!r}", reply)
        self.reply = reply

    @property
    def name(self) -> str:
        return self.signal.name

    def receive(
        self, timeout: Duration | None = None, *, ask: str | None = None, who: str | None = None
    ) -> "DurableOperation[Ask[T, R]]":
        """Consume the oldest unread request of this name, or wait for the next one.

        Raises `TimeoutError` if none arrives within `timeout`. `ask` and `who` are as in `Signal.receive`.
        """
        return receiving(ReceiveRequest(self, prompt_of(ask, who)), timeout)

    def __repr__(self) -> str:
        of, reply = (getattr(each, "__name__", each) for each in (self.signal.of, self.reply))
        return f"Request({self.name!r}, {of}, {reply})"


def require_request(given: object) -> Request[Any, Any]:
    """`given`, if it is a request; raises `InputError` otherwise."""
    if not isinstance(given, Request):
        raise InputError(f"{given!r} is not a request", "pass perdure.Request(name, type, reply)")
    return given


class Answered:
    """What `reply` and `reject` return. The answer is given already; awaiting this changes nothing."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


class Ask(Generic[T, R]):
    """What a client asked: `value`. Answer it once, with `reply` or `reject`, in the workflow.

    The answer commits with the workflow's next step, and the client gets it after that commit.
    """

    __slots__ = ("_guid", "_request", "value")

    def __init__(self, request: Request[T, R], value: T, guid: Guid) -> None:
        self.value = value
        self._request = request
        self._guid = guid

    def reply(self, value: R) -> Answered:
        """Answer with a value of the request's reply type."""
        carrier = f"the reply to request {self._request.name!r}"
        return self._answer(
            "Ask.reply", lambda codec: encode_checked(codec, value, self._request.reply, carrier)
        )

    def reject(self, reason: str) -> Answered:
        """Refuse the request: the client's `ask` raises `RequestRejected` with the reason."""
        text = require_user_text("the reason of a rejection", reason, MAX_ASK_BYTES)
        return self._answer("Ask.reject", lambda codec: codec.encode(text), is_rejection=True)

    def _answer(
        self, verb: str, encode: Callable[[Codec], bytes], *, is_rejection: bool = False
    ) -> Answered:
        context = workflow_context(verb)
        context.answer(self._request.name, self._guid, encode, is_rejection=is_rejection)
        return Answered()

    def __repr__(self) -> str:
        return f"<Ask {self._request.name!r}>"


class ReceiveRequest(Receive[Ask[Any, Any]]):
    """Waits for a request."""

    __slots__ = ("request",)

    verb = "Request.receive"
    noun = "request"

    def __init__(self, request: Request[Any, Any], prompt: Prompt | None = None) -> None:
        super().__init__(request.signal, prompt)
        self.request = request

    @property
    def called(self) -> str:
        return f"{self.request!r}.receive"

    def received(self, value: Any, guid: Guid | None) -> Ask[Any, Any]:
        assert guid is not None  # noqa: S101 - every message has one
        workflow_context(self.verb).asked(self.request.name, guid)
        return Ask(self.request, value, guid)
