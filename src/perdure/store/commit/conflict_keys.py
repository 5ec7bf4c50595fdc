"""Conflict keys: what a bundle writes and another may write too. Bundles that share a key must keep their order."""

from collections.abc import Iterator

from perdure.core.ids import Guid, RunId, StepId
from perdure.store.commit.bundle import Bundle

ConflictKey = tuple[str, ...]


def conflict_keys(bundle: Bundle) -> Iterator[ConflictKey]:
    """A bundle's runs and their keys, messages, tasks, published values and streams."""
    for fence in bundle.fences:
        yield "run", fence.run_id
    if not bundle.has_more:
        return
    for run, _ in bundle.created:
        if run.key is not None:
            yield "key", run.scope, run.program, run.key
    for run_id, guid in _messages(bundle):
        yield "message", run_id, guid
    for run_id, step in _work(bundle):
        yield "work", run_id, step
    for run_id, name, *_ in bundle.published:
        yield "value", run_id, name
    for chunk in bundle.chunks:
        yield "stream", chunk.run_id, chunk.name


def _messages(bundle: Bundle) -> Iterator[tuple[RunId, Guid]]:
    for message in bundle.messages:
        yield message.run_id, message.guid
    for (run_id, guid), (to, _) in bundle.forwarded:
        yield run_id, guid
        yield to, guid
    yield from bundle.acknowledged
    for run_id, guid, *_ in bundle.marked:
        yield run_id, guid


def _work(bundle: Bundle) -> Iterator[tuple[RunId, StepId]]:
    for run_id, step, _ in bundle.finished:
        yield run_id, step
    for work in bundle.work:
        yield work.run_id, work.step
    yield from bundle.dropped


class ConflictKeys:
    """The conflict keys of several bundles."""

    def __init__(self) -> None:
        self._all: set[ConflictKey] = set()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, bundle: Bundle) -> None:
        self._all.update(conflict_keys(bundle))

    def overlap(self, bundle: Bundle) -> bool:
        """Whether the bundle has any of these keys."""
        return not self._all.isdisjoint(conflict_keys(bundle))
