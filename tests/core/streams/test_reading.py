"""What a reader receives, and when."""

from collections.abc import Iterator
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.streams.attempts import Attempts
from perdure.core.streams.chunks import ROOT, ChunkOrigin, ChunkState, StoredChunk
from perdure.core.streams.reading import DeliveredChunk, StreamReading, VoidedAttempt

STEP = StepId("root.0")
FIRST, SECOND = ChunkOrigin(STEP, 1), ChunkOrigin(STEP, 2)
PENDING, COMPLETED, ABANDONED = ChunkState

RETRYING = e.InvokeRetrying(STEP, 1, 0)
DONE = e.InvokeCompleted(STEP, 2)


def chunks(*origins: ChunkOrigin, first: int = 0) -> list[StoredChunk]:
    return [StoredChunk(n, origin, b"", 0) for n, origin in enumerate(origins, first)]


def reported(reading: StreamReading, found: list[StoredChunk], *events: e.Event) -> list[Any]:
    """Positions with their states, and voided attempts."""
    reading.learn(events)
    return [
        news if isinstance(news, VoidedAttempt) else (news.chunk.position, news.state)
        for news in reading.take(found)
    ]


def test_chunks_of_a_running_attempt_are_delivered_at_once_and_voided_later() -> None:
    reading = StreamReading(0)
    assert reported(reading, chunks(FIRST, FIRST)) == [(0, PENDING), (1, PENDING)]
    assert reported(reading, []) == []
    assert reported(reading, chunks(SECOND, first=2), RETRYING) == [
        VoidedAttempt(STEP, 1, (range(2),)),
        (2, PENDING),
    ]
    assert reported(reading, [], DONE) == []


def test_chunks_of_an_abandoned_attempt_are_delivered_as_abandoned_and_not_voided() -> None:
    reading = StreamReading(0)
    assert reported(reading, chunks(FIRST, SECOND), RETRYING, DONE) == [
        (0, ABANDONED),
        (1, COMPLETED),
    ]
    assert reported(reading, chunks(FIRST, first=2)) == [(2, ABANDONED)]


def test_voided_chunks_are_reported_as_spans() -> None:
    reading, parallel = StreamReading(0), ChunkOrigin(StepId("root.1"))
    reported(reading, chunks(FIRST, FIRST, parallel, FIRST))
    reported(reading, chunks(FIRST, first=4))
    assert reported(reading, [], RETRYING) == [VoidedAttempt(STEP, 1, (range(2), range(3, 5)))]


def test_chunks_of_a_claim_are_voided_when_a_later_claim_appends() -> None:
    reading = StreamReading(0)
    reported(reading, chunks(FIRST))
    again = ChunkOrigin(STEP, 1, 2)
    assert reported(reading, chunks(again, first=1)) == [
        VoidedAttempt(STEP, 1, (range(1),)),
        (1, PENDING),
    ]


def test_a_reconnecting_reader_learns_which_of_its_chunks_are_void() -> None:
    reading = StreamReading(3)
    reading.recall([(FIRST, range(2)), (SECOND, range(2, 3))])
    assert reported(reading, chunks(SECOND, first=3), RETRYING) == [
        VoidedAttempt(STEP, 1, (range(2),)),
        (3, PENDING),
    ]
    over = e.ExecutionCancelled(released=1)
    assert reported(reading, [], over) == [VoidedAttempt(STEP, 2, (range(2, 4),))]


def test_a_reader_of_completed_chunks_waits_for_pending_ones_and_gets_no_voids() -> None:
    reading = StreamReading(0, completed_only=True)
    parallel = ChunkOrigin(StepId("root.1"))
    found = chunks(ROOT, FIRST, parallel, SECOND)
    done = e.InvokeCompleted(parallel.step, 1)
    assert reported(reading, found, done) == [(0, COMPLETED)]
    assert reading.position == 1
    assert reported(reading, found[1:], RETRYING) == [(2, COMPLETED)]
    assert reported(reading, found[3:], DONE) == [(3, COMPLETED)]


STEPS = [StepId(f"root.{number}") for number in range(3)]


class Story:
    """A run that attempts its steps, in small parts: a chunk, or an event about an attempt."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.journal: list[e.Event] = []
        self.stream: list[StoredChunk] = []

    def tell(self) -> Iterator[None]:
        attempts = dict.fromkeys(STEPS, 0)
        while attempts:
            step = self._chance.choice(list(attempts))
            attempt = attempts[step]
            what = self._chance.choice(["chunk", "chunk", "late chunk", "fail", "end", "give up"])
            if not attempt or what == "fail":
                attempts[step] += 1
                if attempt and self._chance.random() < 0.5:
                    self.journal.append(e.InvokeRetrying(step, attempt, 0))
                self.journal.append(e.InvokeStarted(step, attempt + 1))
            elif what in ("end", "give up"):
                self.journal.append(e.InvokeCompleted(step, attempt, what == "end"))
                del attempts[step]
            else:
                self._append(ChunkOrigin(step, max(1, attempt - (what == "late chunk"))))
            yield
        self.journal.append(e.ExecutionCompleted(released=1))
        yield

    def _append(self, origin: ChunkOrigin) -> None:
        self.stream.append(StoredChunk(len(self.stream), origin, b"", 0))

    def counting(self) -> list[int]:
        """The chunks that count in the end, by the whole journal."""
        end = Attempts()
        for event in self.journal:
            end.learn(event)
        return [c.position for c in self.stream if end.state_of(c.origin) is COMPLETED]


class Audience:
    """A reader that keeps the chunks it receives until they are voided."""

    def __init__(self, story: Story, reading: StreamReading) -> None:
        self._story = story
        self._reading = reading
        self._seen = 0
        self.shown = set(range(reading.position))

    def look(self, limit: int) -> None:
        reading, story = self._reading, self._story
        found = story.stream[reading.position :][:limit]
        reading.learn(story.journal[self._seen :])
        self._seen = len(story.journal)
        for news in reading.take(found):
            if isinstance(news, DeliveredChunk):
                assert news.chunk.position == reading.position - 1
                if news.state is not ABANDONED:
                    self.shown.add(news.chunk.position)
            else:
                for span in news.spans:
                    assert self.shown.issuperset(span)
                    self.shown.difference_update(span)


@given(st.integers(0, 2**32))
def test_delivered_chunks_that_were_not_voided_are_the_completed_ones(seed: int) -> None:
    """However a run goes, whenever readers look, and wherever they begin."""
    chance = Random(seed)
    story = Story(chance)
    audience = [
        Audience(story, StreamReading(0)),
        Audience(story, StreamReading(0, completed_only=True)),
    ]
    for _ in story.tell():
        for reader in audience:
            if chance.random() < 0.3:
                reader.look(limit=chance.randrange(4))
        if chance.random() < 0.1:
            again = StreamReading(chance.randrange(len(story.stream) + 1))
            had = story.stream[: again.position]
            again.recall((c.origin, range(c.position, c.position + 1)) for c in had)
            audience.append(Audience(story, again))
    for reader in audience:
        reader.look(limit=len(story.stream))
        assert sorted(reader.shown) == story.counting()
