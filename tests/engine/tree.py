"""The smallest program that uses every part of the protocol: a tree of steps.

The trigger spawns its children; a step spawns its own when it is done. A step named in `passthrough`
has one leg, every other one puts work on a queue and takes the result in its second leg. The run
completes when the last step has.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from perdure.core.errors import CommitRejected, StaleFence
from perdure.core.ids import Guid, HostId, RunId, StepId, message_guid, new_run_id
from perdure.core.journal.events import ExecutionStarted, InvokeCompleted, InvokeScheduled
from perdure.core.journal.state import State
from perdure.core.messages import Message, Work
from perdure.engine.runs.commit_mode import CommitMode
from perdure.engine.runs.warm import LoadedRun, load_run
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import Claim, NewRun
from perdure.store.store import Store
from tests.engine.legs import Part, Transition, plan_leg1, plan_leg2, plan_passthrough, plan_trigger
from tests.engine.parts import commit_parts, commit_start

TRIGGER = "trigger"
QUEUE = "tree"
LEASE_MS = 1000


@dataclass(frozen=True)
class Tree:
    """Which steps each step spawns."""

    children: dict[str, tuple[str, ...]]
    passthrough: frozenset[str] = frozenset()

    @property
    def steps(self) -> list[str]:
        return sorted({name for names in self.children.values() for name in names})

    def of(self, name: str) -> tuple[str, ...]:
        return self.children.get(name, ())


def step_id(name: str) -> StepId:
    return StepId(f"{name},0")


@dataclass
class Protocol:
    """What the driver does at each turn; seeded bugs replace one of these."""

    plan_trigger: Callable[..., list[Part]] = plan_trigger
    plan_leg1: Callable[..., list[Part]] = plan_leg1
    plan_leg2: Callable[..., list[Part]] = plan_leg2
    plan_passthrough: Callable[..., list[Part]] = plan_passthrough
    commit_parts: Callable[..., Awaitable[None]] = commit_parts
    body_before_intent: bool = False
    due_messages: Callable[[Store, HostId, int], Awaitable[Sequence[Message]]] = (
        lambda store, owner, now_ms: store.due_messages(owner, now_ms, 100)
    )


@dataclass
class TreeHost:
    """A host that drives one tree run; as warm as its memory allows, or loading for each message."""

    store: Store
    owner: HostId
    tree: Tree
    sources: Sources
    mode: CommitMode = CommitMode.FUSED
    warm: bool = True
    protocol: Protocol = field(default_factory=Protocol)
    pick: Callable[[Sequence[Message]], Message] = lambda messages: messages[0]
    body: Callable[[RunId, StepId], Awaitable[None]] | None = None
    """The work itself, as the world outside sees it."""

    _loaded: LoadedRun | None = None

    async def start(self, key: str) -> RunId:
        """Start the run, or resume it: safe to call again after a crash."""
        run = await self.store.run_by_key("", "tree", key)
        run_id = run.run_id if run else new_run_id(self.sources.now_ms(), self.sources.entropy(10))
        guid = message_guid(run_id, "start")
        begin = self._transition(run_id, TRIGGER, guid)
        inception = ExecutionStarted(
            "tree",
            "digest",
            "00" * 32,
            idempotency_key=key,
            trigger=step_id(TRIGGER),
            guid=guid,
            payload=b"{}",
        )
        if run is None:
            at_ms = self.sources.now_ms()
            new = NewRun(run_id, "tree", at_ms, digest="digest", key=key, owner=self.owner)
            parts = self.protocol.plan_trigger(State(), begin, inception)
            self._loaded = await commit_start(self.store, new, guid, parts, self.sources, self.mode)
            return run_id
        loaded = await self.load(run_id)
        parts = self.protocol.plan_trigger(loaded.journal.state, begin, inception)
        if parts:
            await self._commit(loaded, guid, parts)
        return run_id

    async def turn(self) -> Message | Claim | None:
        """Do one thing that is due; `None` if nothing is."""
        now_ms = self.sources.now_ms()
        messages = await self.protocol.due_messages(self.store, self.owner, now_ms)
        if messages:
            message = self.pick(messages)
            await self.handle(message)
            return message
        token = self.sources.entropy(8).hex()
        claims = await self.store.claim_work(self.owner, [QUEUE], token, now_ms, LEASE_MS, 1)
        for claim in claims:
            await self.work(claim)
            return claim
        return None

    async def handle(self, message: Message) -> None:
        """Take a message through its step."""
        assert message.step is not None
        name = message.step.partition(",")[0]
        loaded = await self.load(message.run_id)
        state = loaded.journal.state
        transition = self._transition(message.run_id, name, message.guid)
        if message.kind == "result":
            outcome = InvokeCompleted(
                message.step, 1, guid=message.guid, staged=True, payload=message.payload
            )
            parts = self.protocol.plan_leg2(state, transition, outcome)
        elif name in self.tree.passthrough:
            parts = self.protocol.plan_passthrough(state, transition)
        else:
            scheduled = InvokeScheduled(message.step, name, staged=True, payload=b"null")
            guid = message_guid(message.run_id, "result", message.step, "1")
            work = Work(message.run_id, message.step, guid, QUEUE, self.sources.now_ms())
            parts = self.protocol.plan_leg1(state, transition, scheduled, work)
            if self.protocol.body_before_intent:
                await self.run_body(work)
        await self._commit(loaded, message.guid, parts)

    async def work(self, claim: Claim) -> None:
        """Do claimed work, and send the result with the proof that the claim still held."""
        work = claim.work
        await self.run_body(work)
        bundle = Bundle()
        bundle.finish_work(work.run_id, work.step, claim.token)
        bundle.enqueue(self._message(work.run_id, work.guid, "result", work.step))
        await self.store.commit(bundle)

    async def run_body(self, work: Work) -> None:
        if self.body is not None:
            await self.body(work.run_id, work.step)

    async def load(self, run_id: RunId) -> LoadedRun:
        if self._loaded is None or not self.warm:
            run = await self.store.run(run_id)
            assert run is not None
            if run.owner not in (None, self.owner):
                raise StaleFence(f"run {run_id!r} is owned by {run.owner!r}", "leave it alone")
            self._loaded = await load_run(self.store, run)
        return self._loaded

    async def _commit(self, loaded: LoadedRun, guid: Guid, parts: list[Part]) -> None:
        try:
            await self.protocol.commit_parts(
                self.store, loaded, guid, parts, self.sources, self.mode
            )
        except CommitRejected:
            self._loaded = None
            raise

    def _transition(self, run_id: RunId, name: str, guid: Guid) -> Transition:
        children = tuple(
            self._message(run_id, message_guid(run_id, "ask", child), "ask", step_id(child))
            for child in self.tree.of(name)
        )
        return Transition(step_id(name), guid, children, result=b'"done"')

    def _message(self, run_id: RunId, guid: Guid, kind: str, step: StepId) -> Message:
        now_ms = self.sources.now_ms()
        return Message(run_id, guid, kind, now_ms, now_ms, step, b'"ok"')
