"""What commands show of an open engine, and need of a closed one."""

from typing import NamedTuple

from perdure.client.engine import Engine
from perdure.core.codec import Codec


class EngineSummary(NamedTuple):
    """The store's name has no password in it."""

    store: str
    queues: tuple[str, ...]
    programs: tuple[str, ...]


def engine_summary(engine: Engine) -> EngineSummary:
    """The store, queues and programs of an open engine."""
    dispatcher = engine._require_host().dispatcher
    programs = tuple(sorted(dispatcher.programs.names()))
    return EngineSummary(dispatcher.store.name, engine.queues, programs)


class EngineParts(NamedTuple):
    """What a command needs of an engine that it does not open."""

    url: str
    codec: Codec
    reveal: bool
    """Whether texts may show payloads."""


def engine_parts(engine: Engine) -> EngineParts:
    return EngineParts(engine._url, engine._codec, engine.settings.reveal_payloads)
