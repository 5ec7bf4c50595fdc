"""The tree under the crash explorer: what may happen to it, and what must hold afterwards."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from perdure.core.errors import CommitRejected
from perdure.core.ids import HostId, RunId, StepId, message_guid
from perdure.core.journal.events import ExecutionCompleted, InvokeCompleted, InvokeScheduled
from perdure.core.journal.state import Status
from perdure.core.ledger import (
    AccountId,
    ActivityLedger,
    MessageLedger,
    message_account,
    step_account,
)
from perdure.core.messages import Message
from perdure.engine.runs.commit_mode import CommitMode
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from perdure.testing.explorer import Killed, World
from tests.engine.tree import LEASE_MS, TRIGGER, Protocol, Tree, TreeHost, step_id

TURNS = 500
"""More turns than any schedule needs: beyond it the run is stuck."""


@dataclass
class TreeScenario:
    """Drives one tree to its end through crashes, lost owners, and repeated or reordered messages."""

    tree: Tree
    mode: CommitMode = CommitMode.FUSED
    warm: bool = True
    redeliver: bool = True
    protocol: Protocol = field(default_factory=Protocol)

    async def __call__(self, world: World) -> None:
        drive = _Drive(self, world)
        await drive.to_the_end()
        run = await world.store.run_by_key("", "tree", "the tree")
        assert run is not None, "the run was never started"
        await assert_tree_is_done(world.store, run.run_id, self.tree)


class _Drive:
    """Hosts, one after the other: each lives until it is killed or fenced out."""

    def __init__(self, scenario: TreeScenario, world: World) -> None:
        self._scenario = scenario
        self._world = world
        self._hosts: list[HostId] = []
        self._dead: list[HostId] = []
        """Usurpers that were killed: the host that they took for dead is still there, and finds out."""
        self._turns = 0
        self._repeated: set[str] = set()
        self._late: list[Message] = []

    async def to_the_end(self) -> None:
        while True:
            self._world.usurp = self._usurp
            try:
                await self._live()
            except (Killed, CommitRejected):
                self._world.sources.advance(LEASE_MS)
            else:
                return

    async def _usurp(self) -> None:
        """Another host takes this one for dead, and finishes its runs."""
        self._world.sources.advance(LEASE_MS)
        try:
            await self._live()
        except Killed:
            self._dead.append(self._hosts[-1])

    async def _live(self) -> None:
        """One host's life: take over what the ones before it left, then work until all is done."""
        host = self._new_host()
        for before in self._hosts[:-1]:
            await self._world.store.take_over(before, host.owner, 100)
        run_id = await host.start("the tree")
        while not await self._is_done(run_id) or await self._send_late(None):
            self._turns += 1
            assert self._turns < TURNS, "the run is stuck"
            done = await host.turn()
            if isinstance(done, Message):
                await self._maybe_repeat(done)
            elif done is None:
                self._world.sources.advance(LEASE_MS)
                for dead in self._dead:
                    await self._world.store.take_over(dead, host.owner, 100)

    def _new_host(self) -> TreeHost:
        scenario, world = self._scenario, self._world
        self._hosts.append(HostId(f"host-{len(self._hosts) + 1}"))
        return TreeHost(
            world.host_store(),
            self._hosts[-1],
            scenario.tree,
            world.sources,
            scenario.mode,
            scenario.warm,
            scenario.protocol,
            self._pick,
            self._body,
        )

    async def _body(self, run_id: RunId, step: StepId) -> None:
        """Intent before effect, and no effect after its outcome is known."""
        events = [entry.event for entry in await self._world.store.entries(run_id)]
        asked = [e for e in events if isinstance(e, InvokeScheduled) and e.promise_id == step]
        answered = [e for e in events if isinstance(e, InvokeCompleted) and e.promise_id == step]
        assert asked, f"{step} ran before its intent was durable"
        assert not answered, f"{step} ran again after its outcome was durable"

    async def _is_done(self, run_id: RunId) -> bool:
        run = await self._world.store.run(run_id)
        messages = await self._world.store.messages(run_id)
        pending = [state for _, state, _ in messages if state == "pending"]
        return run is not None and run.closed_at_ms is not None and not pending

    def _pick(self, messages: Sequence[Message]) -> Message:
        """Messages may be taken in any order."""
        names = [f"{m.kind} {m.step}" for m in messages]
        taken = self._world.choose("take", names)
        return messages[names.index(taken)]

    async def _maybe_repeat(self, message: Message) -> None:
        """A sender that did not see its message arrive sends it again, at once or much later."""
        if message.kind == "result":
            await self._send_late(message.step)
        if not self._scenario.redeliver or message.guid in self._repeated:
            return
        question = f"{message.kind} {message.step} is sent"
        fate = self._world.choose(question, ["once", "again", "again, later"])
        if fate != "once":
            self._repeated.add(message.guid)
            self._late.append(message)
        if fate == "again":
            await self._send_late(message.step)

    async def _send_late(self, step: StepId | None) -> bool:
        """Send what is held back: of one step, which is done now; or all, as the run is over."""
        sent = [message for message in self._late if step in (None, message.step)]
        bundle = Bundle()
        for message in sent:
            self._late.remove(message)
            bundle.enqueue(message)
        await self._world.store.commit(bundle)
        return bool(sent)


async def assert_tree_is_done(store: Store, run_id: RunId, tree: Tree) -> None:
    """Exactly once: every child spawned, every result taken, the run completed; digit for digit."""
    run = await store.run(run_id)
    assert run is not None
    assert run.status is Status.COMPLETED
    assert run.semaphore == 0
    events = [entry.event for entry in await store.entries(run_id)]
    workers = [name for name in tree.steps if name not in tree.passthrough]
    once = Counter(step_id(name) for name in workers)
    assert Counter(e.promise_id for e in events if isinstance(e, InvokeScheduled)) == once
    assert Counter(e.promise_id for e in events if isinstance(e, InvokeCompleted)) == once
    assert sum(isinstance(e, ExecutionCompleted) for e in events) == 1
    balances = await store.balances(run_id)
    closers = 0
    for name in tree.steps:
        closers += _assert_step_digits(balances, run_id, name, passthrough=name in tree.passthrough)
    assert balances[step_account(step_id(TRIGGER))] == 101100000000001
    assert closers == (1 if tree.steps else 0)


def _assert_step_digits(
    balances: dict[AccountId, int], run_id: RunId, name: str, *, passthrough: bool
) -> bool:
    """The digits of a step that is done; returns whether it closed the run."""
    step = ActivityLedger(balances[step_account(step_id(name))])
    parts = ("ask", name) if passthrough else ("result", step_id(name), "1")
    message = MessageLedger(balances[message_account(message_guid(run_id, *parts))])
    assert step.leg1_done
    assert step.entries == (0 if passthrough else 1)
    assert message.ordinal == 1
    assert message.work_done
    assert message.spawned
    assert message.completed == message.closed == step.is_finalized
    return message.closed
