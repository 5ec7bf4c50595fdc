"""An event bus: which events it gets, and how one event is published."""

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final, TypedDict

import msgspec

from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.tags import TagValue, tag_texts
from perdure.authoring.texts import require_user_text
from perdure.core.errors import InputError
from perdure.core.journal.contract import EventType
from perdure.core.limits import MAX_NAME_LENGTH
from perdure.core.runs.contract_event import ContractEvent

DEFAULT_TRIES: Final = 8
DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_CONCURRENCY: Final = 16

_TYPES: Final = frozenset(each.value for each in EventType)
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]+")


class BusOptions(TypedDict, total=False):
    """Options of every event bus, by keyword.

    A bus gets the events of runs of these `programs` (workflows, graphs, or their names), of these `types` (such as
    "RunCompleted"), and of runs that have all of these `tags` when the event is published; without an option, of all.
    With `payloads=False` the `data` of events is left out. An event that is refused `tries` times is a dead letter.
    `timeout` is for one event. Events of so many runs are published at the same time (`concurrency`); those of one run
    follow each other.
    """

    programs: Iterable[Any] | None
    types: Iterable[str] | None
    tags: Mapping[str, TagValue] | None
    payloads: bool
    tries: int
    timeout: Duration
    concurrency: int


class EventBus(ABC):
    """Where the events of runs are published: `Engine(url, buses=[...])`.

    The name identifies the bus in the store: its marks stay when the engine is opened again. A bus of your own derives
    from this class and defines `publish`.
    """

    def __init__(self, name: str, options: BusOptions) -> None:
        unknown = sorted(options.keys() - BusOptions.__annotations__.keys())
        if unknown:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword {unknown[0]!r}")
        self.name = require_bus_name(name)
        self.programs = _program_names(options.get("programs"))
        self.types = _event_types(options.get("types"))
        self.tags = tag_texts(options.get("tags") or {})
        self.payloads = options.get("payloads", True)
        self.tries = _count("tries", options.get("tries", DEFAULT_TRIES))
        self.concurrency = _count("concurrency", options.get("concurrency", DEFAULT_CONCURRENCY))
        timeout = options.get("timeout", DEFAULT_TIMEOUT_S)
        self.timeout_s = milliseconds(timeout, "timeout") / 1000
        if not self.timeout_s:
            raise InputError(f"timeout is {timeout!r}", "pass more than 0 seconds")
        if not isinstance(self.payloads, bool):
            raise InputError(f"payloads is {self.payloads!r}", "pass True or False")

    @abstractmethod
    async def publish(self, event: ContractEvent) -> None:
        """Publish one event; return when the bus has it.

        Raises `BusRefused` if the bus does not take this event, and `BusUnavailable` if it takes no events now. A
        `ConnectionError` or `TimeoutError` counts as unavailable, any other exception as refused. After a crash an
        event may be published again, with the same `event_id` and `seq`.
        """

    def begin(self, event: ContractEvent) -> Awaitable[None] | None:
        """Begin to publish one event; `None` if it is published already, without a wait that could time out."""
        return self.publish(event)

    async def close(self) -> None:  # noqa: B027 - not all have something to close
        """Close connections. `publish` may be called again later."""

    def shown(self, event: ContractEvent) -> ContractEvent:
        """The event as it is published: without its data if the bus gets no payloads."""
        return event if self.payloads else msgspec.structs.replace(event, data={})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def require_bus_name(name: object) -> str:
    text = require_user_text("the name of a bus", name, MAX_NAME_LENGTH)
    if not _NAME.fullmatch(text):
        raise InputError(f"the name of a bus is {text!r}", "use a name without spaces")
    return text


def _program_names(programs: Iterable[Any] | None) -> tuple[str, ...] | None:
    if programs is None:
        return None
    names = [] if isinstance(programs, str) else [getattr(p, "name", p) for p in programs]
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"programs is {programs!r:.200}", "pass a list of programs or their names")
    return tuple(sorted(set(names)))


def _event_types(types: Iterable[str] | None) -> frozenset[str] | None:
    if types is None:
        return None
    names = frozenset() if isinstance(types, str) else frozenset(map(str, types))
    if not names or not names <= _TYPES:
        odd = ", ".join(sorted(names - _TYPES)) or repr(types)
        raise InputError(f"there are no events of type {odd}", "use names such as 'RunCompleted'")
    return names


def _count(what: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 1000:
        raise InputError(f"{what} is {number!r}", "pass a whole number from 1 to 1000")
    return number
