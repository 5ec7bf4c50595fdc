"""What a reader of a stream has been told, and what it is to be told next."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from perdure.core.ids import StepId
from perdure.core.journal.events import Event
from perdure.core.streams.attempts import Attempts
from perdure.core.streams.chunks import ChunkState, Origin, StoredChunk


class Delivered(NamedTuple):
    """A chunk, and whether it counts as far as is known."""

    chunk: StoredChunk
    state: ChunkState


class Voided(NamedTuple):
    """An execution whose chunks the reader has, and which was abandoned since."""

    step: StepId
    attempt: int
    spans: tuple[range, ...]


class Reading:
    """One reader's place in a stream. Chunks and events go in, in the order of the store; news comes out.

    Every chunk is delivered once, in the order of positions. A chunk that is delivered while its attempt is pending
    is voided later if that is abandoned; if nobody says so until the end, it counts. With `completed_only` nothing is
    delivered before it counts, and a pending chunk holds up those behind it.
    """

    def __init__(self, start: int, *, completed_only: bool = False) -> None:
        self.position = start
        """The position of the next chunk."""
        self.attempts = Attempts()
        self.completed_only = completed_only
        self._open: dict[Origin, list[range]] = {}
        """What was delivered of executions that are not known to be completed or abandoned."""

    def recall(self, spans: Iterable[tuple[Origin, range]]) -> None:
        """The reader had these chunks before it came back: what became of them is news to it."""
        for origin, span in spans:
            self.attempts.see(origin)
            self._open.setdefault(origin, []).append(span)

    def learn(self, events: Iterable[Event]) -> None:
        """Take in the next events of the run's journal."""
        for event in events:
            self.attempts.learn(event)

    def take(self, chunks: Sequence[StoredChunk]) -> Iterator[Delivered | Voided]:
        """Take in the chunks from `position` on; what follows for the reader, in order.

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
                yield Delivered(chunk, state)

    def _settle(self) -> Iterator[Voided]:
        for origin in list(self._open):
            state = self.attempts.state_of(origin)
            if state is ChunkState.PENDING:
                continue
            spans = self._open.pop(origin)
            if state is ChunkState.ABANDONED:
                yield Voided(origin.step, origin.attempt, tuple(spans))


def _extend(spans: list[range], position: int) -> None:
    if spans and spans[-1].stop == position:
        spans[-1] = range(spans[-1].start, position + 1)
    else:
        spans.append(range(position, position + 1))
