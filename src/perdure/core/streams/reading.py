"""One reader's progress in a stream, and what it receives next."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from perdure.core.ids import StepId
from perdure.core.journal.events import Event
from perdure.core.streams.attempts import Attempts
from perdure.core.streams.chunks import ChunkOrigin, ChunkState, StoredChunk


class DeliveredChunk(NamedTuple):
    """A chunk, and whether it counts as far as is known."""

    chunk: StoredChunk
    state: ChunkState


class VoidedAttempt(NamedTuple):
    """An execution that was abandoned after the reader received chunks of it."""

    step: StepId
    attempt: int
    spans: tuple[range, ...]


class StreamReading:
    """One reader's position in a stream. It takes chunks and events in store order, and yields deliveries and voids.

    Every chunk is delivered once, in order of position. A chunk delivered while its attempt is pending is voided if
    the attempt is abandoned later; otherwise it counts. With `completed_only` a chunk is delivered only once it
    counts, and a pending chunk blocks those behind it.
    """

    def __init__(self, start: int, *, completed_only: bool = False) -> None:
        self.position = start
        """The position of the next chunk."""
        self.attempts = Attempts()
        self.completed_only = completed_only
        self._open: dict[ChunkOrigin, list[range]] = {}
        """Positions delivered, by execution that is still pending."""

    def recall(self, spans: Iterable[tuple[ChunkOrigin, range]]) -> None:
        """The reader received these chunks before it reconnected: report those that are voided since."""
        for origin, span in spans:
            self.attempts.see(origin)
            self._open.setdefault(origin, []).append(span)

    def learn(self, events: Iterable[Event]) -> None:
        """Take in the next events of the run's journal."""
        for event in events:
            self.attempts.learn(event)

    def take(self, chunks: Sequence[StoredChunk]) -> Iterator[DeliveredChunk | VoidedAttempt]:
        """Take the chunks from `position` on; yields what the reader receives, in order.

        The journal must have been read after the chunks: then an attempt is voided before chunks of the next
        one are delivered.
        """
        for chunk in chunks:
            self.attempts.see(chunk.origin)
        yield from self._settle()
        for chunk in chunks:
            state = self.attempts.state_of(chunk.origin)
            if self.completed_only and state is ChunkState.PENDING:
                return
            self.position = chunk.position + 1
            if state is ChunkState.PENDING:
                _extend(self._open.setdefault(chunk.origin, []), chunk.position)
            if state is ChunkState.COMPLETED or not self.completed_only:
                yield DeliveredChunk(chunk, state)

    def _settle(self) -> Iterator[VoidedAttempt]:
        for origin in list(self._open):
            state = self.attempts.state_of(origin)
            if state is ChunkState.PENDING:
                continue
            spans = self._open.pop(origin)
            if state is ChunkState.ABANDONED:
                yield VoidedAttempt(origin.step, origin.attempt, tuple(spans))


def _extend(spans: list[range], position: int) -> None:
    if spans and spans[-1].stop == position:
        spans[-1] = range(spans[-1].start, position + 1)
    else:
        spans.append(range(position, position + 1))
