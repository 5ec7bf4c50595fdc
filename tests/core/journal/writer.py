"""A journal that tests write to: the clock ticks, nonces are repeatable, entries are kept."""

from hashlib import sha256
from typing import Any, NamedTuple

from perdure.core.ids import RunId, SetId, StepId, new_run_id
from perdure.core.journal.entry import NONCE_BYTES, Entry
from perdure.core.journal.events import Event, ExecutionStarted
from perdure.core.journal.journal import Appended, Journal
from perdure.core.journal.state import State

RUN = new_run_id(1_700_000_000_000, bytes(10))
OTHER_RUN = new_run_id(1_700_000_000_000, bytes(9) + b"\1")

STARTED = ExecutionStarted("checkout", "d1", "00" * 32, payload=b"{}")


class At(NamedTuple):
    """An event at its place."""

    seq: int
    event: Event


def step(number: int) -> StepId:
    return StepId(f"root.{number}")


def join_set(number: int) -> SetId:
    return SetId(f"root.{number}")


def nonces(first: int, count: int) -> bytes:
    """Entropy for `count` entries from `first` on: the same whether they are appended at once or not."""
    parts = (sha256(b"nonce %d" % n).digest() for n in range(first, first + count))
    return b"".join(part[:NONCE_BYTES] for part in parts)


class Writer:
    """A journal and the entries that it gave to the store."""

    def __init__(self, run_id: RunId = RUN) -> None:
        self.journal = Journal(run_id)
        self.entries: list[Entry] = []

    @property
    def state(self) -> State:
        return self.journal.state

    @property
    def events(self) -> list[Event]:
        return [entry.event for entry in self.entries]

    def append(self, *events: Event) -> Appended:
        """Append all the events at once, or none."""
        seq = self.journal.seq
        appended = self.journal.append(events, 1_000, nonces(seq, len(events)))
        self.entries.extend(appended.entries)
        return appended


def written(*events: Event) -> Writer:
    writer = Writer()
    writer.append(*events)
    return writer


def started(*events: Event) -> Writer:
    """A run that has begun, and did `events`."""
    return written(STARTED, *events)


def state_snapshot(state: State) -> dict[str, Any]:
    """Everything that a state holds, copied; its undo log is scratch paper."""
    held = {slot: getattr(state, slot) for slot in State.__slots__ if slot != "undo"}
    return {slot: dict(v) if isinstance(v, dict) else v for slot, v in held.items()}


def snapshot(journal: Journal) -> tuple[dict[str, Any], int, bytes]:
    return state_snapshot(journal.state), journal.seq, journal.head
