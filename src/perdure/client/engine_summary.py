"""The summary of an open engine, for logs and command output."""

from typing import NamedTuple

from perdure.client.engine import Engine


class EngineSummary(NamedTuple):
    """The store's name has no password in it."""

    store: str
    queues: tuple[str, ...]
    programs: tuple[str, ...]


def summary_of(engine: Engine) -> EngineSummary:
    """The store, queues and programs of an open engine."""
    dispatcher = engine._require_host().dispatcher
    programs = tuple(sorted(dispatcher.programs.names()))
    return EngineSummary(dispatcher.store.name, engine.queues, programs)
