"""Random limits, starts, ends and crashes against a simple model: never above a limit, none starves, nothing leaks."""

import asyncio
from collections import defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from perdure.core.admission.deciding import Fate, Standing, Verdict, judge, room
from perdure.core.admission.rules import Over, Rules
from perdure.core.ids import HostId, RunId
from perdure.core.messages import AT_ONCE, Message
from perdure.core.replay.identity import cancel_guid
from perdure.store import admission_steps
from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from perdure.store.store import Store
from tests.store.builders import NOW, raw
from tests.store.entrants import PROGRAM, begin, end, entrant

_scopes = admission_steps._scopes

SCOPES = ("", "a", "b")


class Limited(NamedTuple):
    """A limit of the model: how many may be open, how many may wait, and what starts over it do."""

    running: int
    queued: int | None
    over: Over
    spans_scopes: bool

    @property
    def rules(self) -> Rules:
        return Rules(self.running, self.queued, self.over)


class Start(NamedTuple):
    scope: int
    priority: int
    host: int


class Dequeue(NamedTuple):
    host: int


class End(NamedTuple):
    which: int


class Cancel(NamedTuple):
    which: int


class Die(NamedTuple):
    """A host dies, and the other takes its runs over."""

    host: int


limits = st.builds(
    Limited,
    st.sampled_from([1, 1, 2, 3, 0]),
    st.sampled_from([None, None, 3, 0]),
    st.sampled_from(["queue", "queue", "reject"]),
    st.booleans(),
)
starts = st.builds(Start, st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))
ends = st.builds(End, st.integers(0, 9))
dequeues = st.builds(Dequeue, st.integers(0, 1))
others = st.builds(Cancel, st.integers(0, 9)) | st.builds(Die, st.integers(0, 1))
steps = st.lists(
    st.one_of(starts, starts, starts, ends, ends, dequeues, dequeues, others),
    min_size=12,
    max_size=40,
)


class Model:
    """What the store must show: who is open, and who waits, by scope and in order."""

    def __init__(self, limit: Limited) -> None:
        self.limit = limit
        self.open: dict[RunId, str] = {}
        """The runs that hold a slot, with the scope in which each counts."""
        self.waiting: dict[RunId, tuple[str, int]] = {}
        """Scope and priority of the runs that wait, the oldest first."""
        self.served: dict[str, str] = defaultdict(str)

    def counted(self, scope: str) -> str:
        return "" if self.limit.spans_scopes else scope

    def free(self, counted: str) -> int:
        held = sum(each == counted for each in self.open.values())
        return self.limit.running - held

    def line(self, counted: str) -> list[RunId]:
        return [run for run, (scope, _) in self.waiting.items() if self.counted(scope) == counted]

    def start(self, run_id: RunId, scope: str, priority: int) -> Fate:
        counted = self.counted(scope)
        line = self.line(counted)
        if self.free(counted) > 0 and not line:
            self.open[run_id] = counted
            return Fate.ADMIT
        is_full = self.limit.queued is not None and len(line) >= self.limit.queued
        if self.limit.over == "reject" or is_full:
            return Fate.REJECT
        self.waiting[run_id] = scope, priority
        return Fate.WAIT

    def dequeue(self) -> set[RunId]:
        """Admit one run after the other: the next scope in turn, then the most urgent, then the oldest."""
        admitted = set()
        for counted in {self.counted(scope) for scope in SCOPES}:
            while self.free(counted) > 0 and (line := self.line(counted)):
                scopes = sorted({self.waiting[run][0] for run in line})
                later = [scope for scope in scopes if scope > self.served[counted]]
                scope = (later or scopes)[0]
                own = [run for run in line if self.waiting[run][0] == scope]
                chosen = max(own, key=lambda run: (self.waiting[run][1], -own.index(run)))
                del self.waiting[chosen]
                self.open[chosen] = counted
                self.served[counted] = scope
                admitted.add(chosen)
        return admitted


class World:
    """A store, two hosts, and the model beside."""

    def __init__(self, store: Store, limit: Limited) -> None:
        self.store = store
        self.model = Model(limit)
        self.hosts = [HostId("host-0"), HostId("host-1")]
        self.number = 0

    async def take(self, step: Start | Dequeue | End | Cancel | Die) -> None:
        match step:
            case Start():
                await self.start(step)
            case Dequeue(host):
                await self.dequeue(self.hosts[host])
            case End(which) if self.model.open:
                await self.end(sorted(self.model.open)[which % len(self.model.open)])
            case Cancel(which) if self.model.waiting:
                await self.cancel(sorted(self.model.waiting)[which % len(self.model.waiting)])
            case Die(host):
                dead = self.hosts[host]
                await self.store.take_over(dead, self.hosts[1 - host], 100)
            case _:
                pass
        await self.check()

    async def start(self, step: Start) -> None:
        self.number += 1
        scope, limit = SCOPES[step.scope], self.model.limit
        given = {"limit_scope": None if limit.spans_scopes else scope, "priority": step.priority}
        start = entrant(self.number, limit.rules, scope=scope, **given)
        host = self.hosts[step.host]
        (entered,) = await self.store.admission.enter([start], host, NOW + self.number)
        assert entered.fate is self.model.start(start.run.run_id, scope, step.priority)

    async def dequeue(self, host: HostId) -> None:
        admitted = await self.store.admission.dequeue(host, [PROGRAM], NOW)
        assert {run.run_id for run in admitted.runs} == self.model.dequeue()

    async def end(self, run_id: RunId) -> None:
        run = await self.store.run(run_id)
        assert run is not None
        await end(self.store, run, await begin(self.store, run))
        del self.model.open[run_id]

    async def cancel(self, run_id: RunId) -> None:
        message = Message(run_id, cancel_guid(run_id), "cancel", AT_ONCE, NOW, payload=b"")
        assert await self.store.admission.call_up(message)
        del self.model.waiting[run_id]
        admitted = await self.store.admission.dequeue(self.hosts[0], [PROGRAM], NOW)
        begun = {run.run_id for run in admitted.runs}
        assert begun == self.model.dequeue() | {run_id}
        run = await self.store.run(run_id)
        assert run is not None
        await end(self.store, run, await begin(self.store, run))
        await raw(self.store, f"DELETE FROM {{}}message WHERE guid = '{message.guid}'")

    async def check(self) -> None:
        """The store shows what the model says, and no slot is held beyond the limit."""
        for slot in await self.store.admission.slots("L", "", 100):
            assert slot.running <= self.model.limit.running
        held = sum(slot.running for slot in await self.store.admission.slots("L", "", 100))
        waits = sum(slot.waiting for slot in await self.store.admission.slots("L", "", 100))
        assert (held, waits) == (len(self.model.open), len(self.model.waiting))

    async def drain(self) -> None:
        """Everything that is open ends, so everything that waits begins, if the limit lets anything begin."""
        while self.model.open or (self.model.waiting and self.model.limit.running):
            for run_id in sorted(self.model.open):
                await self.end(run_id)
            await self.dequeue(self.hosts[0])
        assert (await audit_store(self.store)).is_clean
        assert (await verify_store(self.store)).is_clean
        if self.model.limit.running:
            assert await raw(self.store, "SELECT count(*) FROM {}pending") == [(0,)]
            assert await raw(self.store, "SELECT count(*) FROM {}message") == [(0,)]


async def live(limit: Limited, taken: list[Start | Dequeue | End | Cancel | Die]) -> None:
    store = await open_store("sqlite:///:memory:")
    try:
        world = World(store, limit)
        for step in taken:
            await world.take(step)
        await world.drain()
    finally:
        await store.close()


@given(limits, steps)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_history_of_starts_ends_and_crashes_departs_from_the_model(
    limit: Limited, taken: list[Start | Dequeue | End | Cancel | Die]
) -> None:
    asyncio.run(live(limit, taken))


def one_too_many(rules: Rules, standing: Standing, now_ms: int, most: int) -> int:
    return room(rules, standing, now_ms, most) + 1


def without_turns(slot: str, _: str | None, count: int) -> admission_steps.Steps[list[Any]]:
    return _scopes(slot, None, count)


def ahead_of_the_line(rules: Rules, standing: Standing, now_ms: int, *, is_ready: bool) -> Verdict:
    standing.ready = 0
    return judge(rules, standing, now_ms, is_ready=is_ready)


@pytest.mark.parametrize(
    ("name", "bug"),
    [("room", one_too_many), ("_scopes", without_turns), ("judge", ahead_of_the_line)],
)
def test_the_model_finds_a_seeded_bug(
    name: str, bug: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_steps, name, bug)
    one_for_all = st.just(Limited(1, None, "queue", True))
    search = settings(max_examples=200, deadline=None, phases=[Phase.generate], database=None)

    @search
    @given(one_for_all, steps)
    def explored(limit: Limited, taken: list[Start | Dequeue | End | Cancel | Die]) -> None:
        asyncio.run(live(limit, taken))

    with pytest.raises(AssertionError):
        explored()
