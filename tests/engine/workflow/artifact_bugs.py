"""Deliberate bugs of artifacts, as switches: the explorer must catch each."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from perdure.core.artifacts import SCHEME, ArtifactName, RunFacts, to_delete
from perdure.core.journal.events import ArtifactRef
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.host.artifacts import sweep as sweeping
from perdure.host.artifacts.artifacts import store_artifact
from perdure.host.artifacts.payloads import LargePayloads
from perdure.host.tasks import queues


@contextmanager
def referenced_before_it_is_stored() -> Iterator[None]:
    """The reference is given out while the object is still to be stored."""
    late: list[tuple[Any, ...]] = []

    async def hasty(*given: Any) -> ArtifactRef:
        while late:
            await store_artifact(*late.pop())
        late.append(given)
        name = str(ArtifactName(given[1], 0, given[-1]))
        return ArtifactRef(SCHEME + name, given[3])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perdure.host.tasks.requests.store_artifact", hasty)
        yield


@contextmanager
def swept_while_the_run_is_open() -> Iterator[None]:
    """A sweep deletes what the journal of an open run does not refer to yet."""

    def greedy(objects: Any, run: RunFacts | None, *rest: Any) -> list[str]:
        facts = RunFacts(False, ()) if run is not None and run.is_in_use else run
        return to_delete(objects, facts, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeping, "to_delete", greedy)
        yield


@contextmanager
def references_lost_on_a_queue() -> Iterator[None]:
    """The outcome of a queued task is sent without the references of its artifacts."""

    def forgetful(outcome: AttemptOutcome) -> bytes:
        return outcome.payload

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queues, "pack_outcome", forgetful)
        yield


@contextmanager
def large_payloads_stored_never() -> Iterator[None]:
    """The commit does not wait for the bytes of large payloads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LargePayloads, "store_noted", LargePayloads.forget_noted)
        yield


BUGS: dict[str, tuple[Callable[[], AbstractContextManager[None]], str]] = {
    "referenced_before_it_is_stored": (referenced_before_it_is_stored, "is not stored"),
    "swept_while_the_run_is_open": (swept_while_the_run_is_open, "is not stored"),
    "references_lost_on_a_queue": (references_lost_on_a_queue, "does not list"),
}
