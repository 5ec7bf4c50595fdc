"""What the store keeps of runs, of claimed work and of graphs. Plain values."""

import msgspec

from perdure.core.ids import HostId, RunId, StepId
from perdure.core.journal.state import Status
from perdure.core.messages import Work


class Sent(msgspec.Struct, frozen=True):
    """A message that was sent before: where it waits, with what it says; or, if it `is_taken`, who has taken it in."""

    run_id: RunId
    payload: bytes | None
    is_taken: bool


class NewRun(msgspec.Struct, frozen=True):
    """A run that is about to exist. `key` is unique over scope and program; `chain` is as in `Run`."""

    run_id: RunId
    program: str
    created_at_ms: int
    scope: str = ""
    version: str = ""
    digest: str = ""
    key: str | None = None
    owner: HostId | None = None
    chain: RunId | None = None


class Run(msgspec.Struct, frozen=True):
    """A run as stored. `seq` counts its entries; `head` is the hash of the last one.

    `parked` says why the run is not advanced; `None` while it is not parked. `chain` is the first run of the chain
    that this one continues; `None` if it continues none.
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

    @property
    def origin(self) -> RunId:
        """The run that began what this one goes on with: the first of its chain, or itself."""
        return self.chain or self.run_id


def unborn(new: NewRun) -> Run:
    """A new run as it will be stored, as far as that is known before."""
    names = (new.scope, new.program, new.version, new.digest, new.key, new.owner)
    return Run(new.run_id, *names, 0, 0, b"", 0, Status.RUNNING, new.created_at_ms, None)


class Tenure(msgspec.Struct, frozen=True):
    """By what right a host writes what a task says: it owns the task's run or, with a `step`, has claimed that task."""

    host: HostId
    step: StepId | None = None


class Claim(msgspec.Struct, frozen=True):
    """Work that a host may do until its lease ends; `token` proves it.

    `claims` counts the hosts that claimed it one after the other, this one included, save those that gave it back
    unbegun.
    """

    work: Work
    token: str
    claims: int

    @property
    def doubts(self) -> int:
        """How many hosts had it before and may have begun it."""
        return self.claims - 1


class Readiness(msgspec.Struct, frozen=True):
    """A node of a graph that waits: so many of the predecessors that it requires are resolved."""

    step: StepId
    required: int
    completed: int


class Delivery(msgspec.Struct, frozen=True):
    """A value that waits for a node: from which step, under which name; from which item of a spread, if from one."""

    step: StepId
    source: StepId
    variable: str
    position: int
    value: bytes


class Hook(msgspec.Struct, frozen=True):
    """How a signal finds a run: a step waits for one at the mailbox, or a search key names the run."""

    run_id: RunId
    step: StepId
    kind: str
    mailbox: RunId
    topic: str
    key: str
    since_ms: int


class Broadcast(msgspec.Struct, frozen=True):
    """A signal to all open runs that a search key finds; with `scrub`, they are not found by it again.

    The GUID of each message is that of its run and `suffix`.
    """

    mailbox: RunId
    kind: str
    payload: bytes | None
    suffix: str
    now_ms: int
    scrub: bool


class NewProgram(msgspec.Struct, frozen=True):
    """A version of a program that is to be deployed."""

    name: str
    version: str
    digest: str
    content: str


class Program(msgspec.Struct, frozen=True):
    """A version of a graph that was deployed. `open_runs` counts the runs of it that are not over, `activations` how
    often it was made the active one."""

    name: str
    version: str
    digest: str
    content: str
    deployed_at_ms: int
    is_active: bool
    activations: int
    open_runs: int


class Deployed(msgspec.Struct, frozen=True):
    """The same for whoever runs it. `content` is `None` if whoever asked has it."""

    name: str
    version: str
    digest: str
    content: str | None
    is_active: bool
    activations: int
