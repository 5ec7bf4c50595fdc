"""What a host commits at once: a run's turn, the turns of the runs that it spawns, and what follows from them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program
from perdure.core.graph.vertex import NO_PLANE
from perdure.core.ids import HostId, RunId, StepId, message_guid, promise_root
from perdure.core.journal.events import ExecutionStarted
from perdure.core.messages import Message
from perdure.engine.replay.effects import Birth, Inherited, Spawn
from perdure.engine.replay.promise import DurablePromise
from perdure.engine.replay.warm import WarmRun
from perdure.host.watching import Ending
from perdure.store.bundle import Bundle
from perdure.store.records import NewRun


class Heritage(NamedTuple):
    """What a run takes over from the one that it continues."""

    continues: RunId | None = None
    chain: RunId | None = None
    key: str | None = None
    inherited: tuple[Inherited, ...] = ()


NO_HERITAGE = Heritage()


class Start(NamedTuple):
    """A run to be started."""

    workflow: Program[..., Any]
    payload: bytes
    key: str | None = None
    scope: str = ""
    parent: str | None = None
    heritage: Heritage = NO_HERITAGE

    def row(self, run_id: RunId, now_ms: int, owner: HostId | None) -> NewRun:
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
        )

    def event(self, run_id: RunId) -> ExecutionStarted:
        """The run's first entry."""
        workflow, heritage = self.workflow, self.heritage
        root = promise_root(bytes.fromhex(workflow.digest), None, self.key or run_id)
        trigger, guid = None, None
        if isinstance(workflow, GraphProgram):
            trigger = workflow.lowered.trigger.step(NO_PLANE)
            guid = message_guid(run_id, "start")
        return ExecutionStarted(
            workflow.name,
            workflow.digest,
            root.hex(),
            workflow.version,
            self.parent,
            self.key or heritage.key,
            trigger,
            guid,
            continues=heritage.continues,
            inherited=len(heritage.inherited),
            payload=self.payload,
        )


def start_of(run: WarmRun, birth: Birth) -> Start:
    """How the run begins that `run` asks for."""
    workflow, payload, parent = birth.workflow, birth.payload, birth.parent
    if isinstance(birth, Spawn):
        return Start(workflow, payload, parent=parent)
    # The start key stays with the first run of the chain: there it is unique.
    heritage = Heritage(run.run_id, run.chain or run.run_id, birth.key, birth.inherited)
    return Start(workflow, payload, None, run.scope, parent, heritage)


class Batch(msgspec.Struct, eq=False):
    """What commits together for one run, and what may happen once it has.

    Most are one step of one run: what they have none of costs nothing.
    """

    run: WarmRun
    bundle: Bundle = msgspec.field(default_factory=Bundle)
    starts: list[tuple[WarmRun, DurablePromise, int]] = []
    """Attempts that begin."""
    unwanted: Sequence[tuple[RunId, StepId]] = ()
    """Bodies that end."""
    children: Sequence[WarmRun] = ()
    unfinished: Sequence[WarmRun] = ()
    """Runs of which something is decided and not written yet."""
    messages: Sequence[Message] = ()
    endings: Sequence[tuple[WarmRun, Ending]] = ()
