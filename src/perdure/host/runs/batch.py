"""A batch: what one turn of a run commits together with the first turns of the runs that it spawns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.authoring.program import Program
from perdure.core.ids import HostId, RunId, StepId, promise_root
from perdure.core.journal.events import ExecutionStarted
from perdure.core.messages import Message
from perdure.core.replay.identity import parse_parent
from perdure.core.runs.tracing import child_context, trace_context
from perdure.engine.programs.triggers import search_keys_of, trigger_of
from perdure.engine.runs.effects import NO_TAGS, CreateRun, Inherited, SpawnChild
from perdure.engine.runs.log_notes import LogNote
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.warm import WarmRun
from perdure.host.tasks.attempt import Attempt
from perdure.host.watchers import RunEnding
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import OnDecided
from perdure.store.rows.records import Enrolment, NewRun


class Terms(NamedTuple):
    """What a caller asks of the admission of a start, besides what its program's limit says."""

    priority: int = 0
    delay_ms: int = 0
    needs_approval: bool = False
    debounce_ms: int = 0
    max_wait_ms: int = 0


NO_TERMS = Terms()


class Heritage(NamedTuple):
    """What a run inherits from the run that it continues."""

    continues: RunId | None = None
    chain: RunId | None = None
    key: str | None = None
    inherited: tuple[Inherited, ...] = ()


NO_HERITAGE = Heritage()


class RunStart(NamedTuple):
    """A request to start a run."""

    workflow: Program[..., Any]
    payload: bytes
    key: str | None = None
    scope: str = ""
    parent: str | None = None
    heritage: Heritage = NO_HERITAGE
    replaces: RunId | None = None
    """The run whose start key this one takes over."""
    run_id: RunId | None = None
    """The id of the run, if its input was stored as a large payload of that run."""
    tags: Mapping[str, str] = NO_TAGS
    trace: str | None = None
    """The trace context that a traced run belongs to; empty if it begins a trace."""
    slot: str | None = None
    """The slot of a limit that the run will hold while it is open."""
    terms: Terms | None = None
    """What the caller asks of the admission; `None` if nothing."""

    @property
    def is_limited(self) -> bool:
        """Whether its admission has to be decided."""
        return self.workflow.limit is not None or self.terms is not None

    @property
    def own_tags(self) -> Mapping[str, str]:
        """The tags that the run gets. A graph's own search key replaces a tag of the same name."""
        if not self.tags:
            return NO_TAGS
        keys = search_keys_of(self.workflow)
        return {name: value for name, value in self.tags.items() if name not in keys}

    def row(
        self,
        run_id: RunId,
        now_ms: int,
        owner: HostId | None,
        enrolments: tuple[Enrolment, ...] = (),
    ) -> NewRun:
        return NewRun(
            run_id,
            self.workflow.name,
            now_ms,
            self.scope,
            self.workflow.version,
            self.workflow.digest,
            self.key,
            owner,
            self.heritage.chain,
            self.replaces,
            None if self.parent is None else parse_parent(self.parent)[0],
            slot=self.slot,
            enrolments=enrolments,
        )

    def event(self, run_id: RunId) -> ExecutionStarted:
        """The run's first entry."""
        workflow, heritage = self.workflow, self.heritage
        root = promise_root(bytes.fromhex(workflow.digest), self.parent, self.key or run_id)
        return ExecutionStarted(
            workflow.name,
            workflow.digest,
            root.hex(),
            workflow.version,
            self.parent,
            self.key or heritage.key,
            *trigger_of(workflow, run_id),
            continues=heritage.continues,
            inherited=len(heritage.inherited),
            scope=self.scope,
            tags=dict(self.own_tags) or None,
            trace=None if self.trace is None else trace_context(run_id, self.trace).text(),
            slot=self.slot,
            payload=self.payload,
        )


def start_of(run: WarmRun, birth: CreateRun) -> RunStart:
    """The start of a run that `run` spawns or continues as."""
    workflow, payload, parent = birth.workflow, birth.payload, birth.parent
    trace = run.machine.info.trace
    if isinstance(birth, SpawnChild):
        if trace is not None:
            trace = child_context(run.run_id, trace).text()
        return RunStart(workflow, payload, None, run.scope, parent, tags=birth.tags, trace=trace)
    # The start key stays with the first run of the chain, where it is unique.
    heritage = Heritage(run.run_id, run.chain or run.run_id, birth.key, birth.inherited)
    return RunStart(
        *(workflow, payload, None, run.scope, parent, heritage),
        tags=birth.tags,
        trace=trace,
        slot=run.machine.slot,
    )


def ignore_outcome(_: BaseException | None) -> None:
    """No caller waits for the outcome."""


def ignore_decision(_: "Batch", outcome: BaseException | None) -> None:
    """The batch was not submitted."""


class Batch(msgspec.Struct, eq=False):
    """One bundle, and the effects that follow when it is durable.

    Most batches are one step of one run, so most fields stay empty and must cost nothing.
    """

    run: WarmRun
    bundle: Bundle = msgspec.field(default_factory=Bundle)
    starts: list[tuple[WarmRun, DurablePromise, int]] = []
    """Attempts to start: their slots are reserved."""
    keepers: Sequence[Attempt] = ()
    """Attempts that have ended and whose slots the next steps of the run may take over."""
    unwanted: Sequence[tuple[RunId, StepId]] = ()
    """Steps whose attempts to cancel."""
    children: Sequence[WarmRun] = ()
    unfinished: Sequence[WarmRun] = ()
    """Runs that have decided more than this batch holds."""
    messages: Sequence[Message] = ()
    endings: Sequence[tuple[WarmRun, RunEnding]] = ()
    log_notes: Sequence[tuple[WarmRun, Sequence[LogNote]]] = ()
    """Events to log."""
    on_decided: OnDecided = ignore_outcome
    decide: "Callable[[Batch, BaseException | None], None]" = ignore_decision
    """What the dispatcher does when the commit of the batch is decided."""
    has_resumed: bool = False
    """Whether a pause ended: messages and work that waited for it are due."""

    def __call__(self, outcome: BaseException | None) -> None:
        """The store has decided the bundle. The batch is its own callback: each step would otherwise make more objects,
        which live until the commit, for the garbage collector to look at."""
        self.decide(self, outcome)
