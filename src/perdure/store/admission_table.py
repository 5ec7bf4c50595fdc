"""Admission in a store: starts that begin or wait, the lines of limits, and what operators have set.

Each method is one transaction. What it decides is pure (`core/admission`); what it reads and writes is a sequence of
statements (`store/admission_steps.py`) that both databases execute.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from perdure.core.admission.deciding import Fate
from perdure.core.admission.rules import NO_SLOT, Rules, Setting
from perdure.core.ids import HostId, RunId
from perdure.core.limits import MAX_TIME_MS
from perdure.core.messages import Message
from perdure.store.rows.records import NewRun, Run

NEVER_DUE_MS: Final = MAX_TIME_MS

MOST_ADMITTED: Final = 500
"""Runs that one transaction admits at most."""

MOST_SLOTS: Final = 100
"""Slots that one transaction looks at, at most."""

READY: Final = "ready"
DELAYED: Final = "delayed"
WAITING: Final = "waiting"
"""It waits for approval."""


class Entrant(msgspec.Struct, frozen=True):
    """A start that admission decides on. `message` is its input; `name` and `rules` are those of its limit."""

    run: NewRun
    message: Message
    slot: str = NO_SLOT
    name: str = ""
    rules: Rules = Rules()
    priority: int = 0
    state: str = READY
    ready_at_ms: int = 0
    until_ms: int | None = None
    tags: tuple[tuple[str, str], ...] = ()
    """By which lists find the run while it waits. Not those of a start that others may still replace."""


class Entered(msgspec.Struct, frozen=True):
    """What became of a start. `run_id` is its run, the run to which it was joined, or that holds its key.

    `cancels` are messages that this transaction sent to runs that are replaced, each with the run's owner.
    """

    fate: Fate | None
    """`None` if a run with the key or the id exists."""
    run_id: RunId
    retry_ms: int = 0
    cancels: tuple[tuple[Message, HostId | None], ...] = ()


class Admitted(msgspec.Struct, frozen=True):
    """Runs that have left the line. `has_more` if more may be admitted at once."""

    runs: tuple[Run, ...]
    has_more: bool = False
    last_slot: str = NO_SLOT
    """The last slot that was looked at; empty if there are no more."""


class Pending(NamedTuple):
    """The place of a run that waits to be admitted."""

    run_id: RunId
    slot: str
    priority: int
    state: str
    ready_at_ms: int
    until_ms: int | None


class StoredSetting(NamedTuple):
    """What an operator has set, and when."""

    kind: str
    name: str
    setting: Setting
    at_ms: int


class SlotStanding(NamedTuple):
    """A slot of a limit: who holds it, and who waits."""

    slot: str
    rules: Rules
    arrival_us: int
    running: int
    waiting: int


class AdmissionTable(Protocol):
    """The interface that both databases implement."""

    async def enter(
        self, entrants: Sequence[Entrant], owner: HostId | None, now_ms: int
    ) -> list[Entered]:
        """Commits: the runs of starts that are admitted or wait. Those that are admitted belong to `owner`."""
        ...

    async def dequeue(
        self,
        owner: HostId | None,
        programs: Sequence[str],
        now_ms: int,
        slots: Sequence[str] = (),
        after: str = NO_SLOT,
    ) -> Admitted:
        """Commits: ownership of runs that may begin now, each once, whatever other hosts admit at the same time.

        Looks at these slots, at the next ones after `after`, and at runs that wait for no limit. Runs of programs
        that are not among `programs` are admitted without an owner.
        """
        ...

    async def call_up(self, message: Message) -> bool:
        """Commits: a message that ends a pending run, which is admitted whatever its limit says. False, and nothing is
        written, if the run is not pending."""
        ...

    async def approve(self, message: Message, now_ms: int) -> bool:
        """Commits: an approval. False, and nothing is written, if the run does not wait for one."""
        ...

    async def pending(self, run_id: RunId) -> Pending | None:
        """The place of a pending run."""
        ...

    async def put_off(self, message: Message, ready_at_ms: int) -> bool:
        """Commits: a debounced run gets another input, and begins later. False if it has begun."""
        ...

    async def set_limit(self, name: str, setting: Setting, at_ms: int) -> None:
        """Commits: an operator's values for a limit."""
        ...

    async def reset_limit(self, name: str) -> bool:
        """Commits: the code's values hold again. False if none were set."""
        ...

    async def settings(self) -> list[StoredSetting]:
        """What operators have set for limits."""
        ...

    async def standing(self, slot: str) -> tuple[SlotStanding, Setting | None]:
        """A slot that a run waits for, and what an operator has set for its limit."""
        ...

    async def slots(self, name: str, after: str, limit: int) -> list[SlotStanding]:
        """Slots of a limit, or of all with an empty name, in order."""
        ...
