"""Rows of runs, of claimed work and of graphs, as plain values."""

from typing import NamedTuple

import msgspec

from perdure.core.ids import Guid, HostId, RunId, StepId
from perdure.core.journal.entry import Entry
from perdure.core.journal.state import TERMINAL, Status
from perdure.core.ledger import AccountId
from perdure.core.messages import MessageSummary, Work, WorkSummary
from perdure.store.rows.values import RowValues


class JournalPart(NamedTuple):
    """Entries `first` to `end` - 1 of a run's journal."""

    run_id: RunId
    first: int
    end: int


class SentMessage(msgspec.Struct, frozen=True):
    """A message sent before: the run or mailbox where it waits, with its payload; or, if `is_taken`, the run that
    recorded it."""

    run_id: RunId
    payload: bytes | None
    is_taken: bool


class Enrolment(msgspec.Struct, frozen=True, gc=False):
    """A bus to which a new run is published. `holder` is the relay that does so until the lease ends, if any."""

    bus: str
    holder: str | None = None
    lease_until_ms: int = 0


class NewRun(msgspec.Struct, frozen=True, gc=False):
    """A run to create. `key` is unique within scope and program; `chain` is as in `Run`.

    `replaces` is the closed run that holds the key and hands it over to the new run. `parent` is the run that gets the
    result, `forked_from` the run of which this one is a fork.
    """

    run_id: RunId
    program: str
    created_at_ms: int
    scope: str = ""
    version: str = ""
    digest: str = ""
    key: str | None = None
    owner: HostId | None = None
    chain: RunId | None = None
    replaces: RunId | None = None
    parent: RunId | None = None
    forked_from: RunId | None = None
    slot: str | None = None
    """The slot of a limit that it holds while it is open."""
    enrolments: tuple[Enrolment, ...] = ()


def enrolled_rows(run: NewRun) -> list[RowValues]:
    """The marks of a new run: each is at its first entry."""
    return [
        (run.run_id, each.bus, each.holder, each.lease_until_ms, 0, "") for each in run.enrolments
    ]


class Run(msgspec.Struct, frozen=True, gc=False):
    """A run as stored. `seq` counts its entries; `head` is the hash of the last one.

    `parked` is the reason why the run is parked, or `None`. `chain` is the first run of the chain that this one
    continues; `None` if it continues none. `damage` describes invalid values in the row, or `None`: a host parks a
    damaged run and does nothing else with it.
    """

    run_id: RunId
    scope: str
    program: str
    version: str
    digest: str
    key: str | None
    owner: HostId | None
    epoch: int
    seq: int
    head: bytes
    semaphore: int
    status: Status
    created_at_ms: int
    closed_at_ms: int | None
    parked: str | None = None
    chain: RunId | None = None
    damage: str | None = None

    @property
    def origin(self) -> RunId:
        """The first run of its chain, or itself."""
        return self.chain or self.run_id

    @property
    def is_over(self) -> bool:
        """Whether the run has ended. A time of closing alone does not say so: in an open run it is damage."""
        return self.closed_at_ms is not None and self.status in TERMINAL


def run_from_new(new: NewRun) -> Run:
    """A new run as it will be stored, as far as its row is known before the commit."""
    names = (new.scope, new.program, new.version, new.digest, new.key, new.owner)
    return Run(new.run_id, *names, 0, 0, b"", 0, Status.RUNNING, new.created_at_ms, None)


class ReadinessRow(msgspec.Struct, frozen=True):
    """A node of a graph that waits: `completed` of its `required` predecessors are resolved."""

    step: StepId
    required: int
    completed: int


class InboxRow(msgspec.Struct, frozen=True):
    """A value that waits for a node: its source step, its name, and its position if it is an item of a spread."""

    step: StepId
    source: StepId
    variable: str
    position: int
    value: bytes


class GraphRows(msgspec.Struct, frozen=True):
    """A run's rows in the graph tables: readiness, inbox, and the mailbox of each step that awaits a signal."""

    readiness: list[ReadinessRow] = []
    inbox: list[InboxRow] = []
    hooks: list[tuple[StepId, RunId]] = []


class Progress(msgspec.Struct, frozen=True):
    """How far a run is: its row, the number of chunks in its streams, and its last entry if it is over."""

    run: Run
    chunks: int
    last: Entry | None


class StoredRun(msgspec.Struct, frozen=True):
    """All rows of a run, from one snapshot: both books, messages and work.

    `messages` are the messages to its steps, by GUID. `work` has the steps that are on a queue. `index` is `None` for a
    run that is not of a graph.
    """

    run: Run
    entries: list[Entry]
    balances: dict[AccountId, int] = {}
    messages: dict[Guid, MessageSummary] = {}
    work: dict[StepId, WorkSummary] = {}
    index: GraphRows | None = None


class TaskHolder(msgspec.Struct, frozen=True):
    """The host whose task publishes a value: it owns the run or, with a `step`, has claimed that task."""

    host: HostId
    step: StepId | None = None


class ActMessage(NamedTuple):
    """An operator act that was sent to a run: whether it is pending, or why it was set aside."""

    guid: Guid
    state: str
    reason: str | None


class ParkedStep(NamedTuple):
    """A step that has failed and waits for an operator: what it calls, the fingerprint of its error, and since when."""

    task: str
    error: str
    since_ms: int


class Claim(msgspec.Struct, frozen=True):
    """Work that a host may do until its lease ends; `token` proves the claim.

    `claims` counts the successive claims, this one included, without those returned unstarted.
    """

    work: Work
    token: str
    claims: int
    owner: HostId | None = None
    """The owner of the task's run when the task was claimed: whom the outcome concerns."""

    @property
    def doubts(self) -> int:
        """How many earlier claims may have started the task."""
        return self.claims - 1


class HookRow(msgspec.Struct, frozen=True):
    """How a signal finds a run: a step waits for it at the mailbox, or a search key names the run."""

    run_id: RunId
    step: StepId
    kind: str
    mailbox: RunId
    topic: str
    key: str
    since_ms: int


class BroadcastRow(msgspec.Struct, frozen=True):
    """A signal to all open runs that have a search key; with `scrub`, later broadcasts do not find these runs.

    The GUID of each message is made of its run's id and `suffix`.
    """

    mailbox: RunId
    kind: str
    payload: bytes | None
    suffix: str
    now_ms: int
    scrub: bool


class NewProgram(msgspec.Struct, frozen=True):
    """A version of a program to deploy."""

    name: str
    version: str
    digest: str
    content: str


class StoredProgram(msgspec.Struct, frozen=True):
    """A deployed version of a graph. `open_runs` counts its open runs, `activations` how often it became the active
    version."""

    name: str
    version: str
    digest: str
    content: str
    deployed_at_ms: int
    is_active: bool
    activations: int
    open_runs: int


class DeployedProgram(msgspec.Struct, frozen=True):
    """A deployed version as hosts read it. `content` is `None` if the caller has it already."""

    name: str
    version: str
    digest: str
    content: str | None
    is_active: bool
    activations: int
