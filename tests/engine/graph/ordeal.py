"""One run of a graph on the real engine, through faults, and what must be true of it afterwards."""

import asyncio
from collections import Counter
from typing import Any

import msgspec

from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.values.failures import Failure
from perdure.core.graph import model as m
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.state import Status
from perdure.store.inspection import audit_runs
from perdure.store.store import Store
from perdure.testing.checkers import assert_sound
from perdure.testing.explorer import OpenStore, memory_store
from perdure.testing.graphs import ReplayCache
from perdure.testing.schedule import Chooser
from perdure.testing.script import Script
from perdure.testing.simulation import Simulation
from perdure.testing.workflows import LONGEST_S, MODES, Ended, run_once
from tests.engine.graph.oracle import Expected


class FaultyChooser(Chooser):
    """Something goes wrong at the given places: options by their numbers, as far as there are so many."""

    def __init__(self, faults: dict[int, int]) -> None:
        super().__init__()
        self._faults = faults

    def choose(self, question: str, options: Any) -> str:
        self._prefix = [*(0 for _ in self.choices), self._faults.get(len(self.choices), 0)]
        self._prefix[-1] %= len(options)
        return super().choose(question, options)


def program_of(graph: m.Graph) -> GraphProgram[..., Any]:
    """A program that the next one of its name may replace."""

    async def stand_in(x: int, y: int, xs: list[int]) -> Any: ...

    return GraphProgram(graph, stand_in)


async def undergo(
    graph: m.Graph,
    given: dict[str, Any],
    expected: Expected,
    mode: str = "warm",
    faults: dict[int, int] | None = None,
    open_store: OpenStore = memory_store,
) -> int:
    """Run the graph to its end and compare. Returns the number of commits."""
    program = program_of(graph)
    chooser = FaultyChooser(faults or {})
    async with open_store() as store:
        # Every crash puts steps in doubt, and none is to be given up for that.
        settings = msgspec.structs.replace(MODES[mode], max_doubts=20)
        simulation = Simulation(store, chooser, settings, (), Script(None), ReplayCache())
        try:
            async with asyncio.timeout(LONGEST_S):
                ended = await run_once(simulation, program(**given))
            assert not simulation.violations, "\n".join(simulation.violations)
            await assert_sound(store)
            async for inspection in audit_runs(store):
                await _assert_settled(store, inspection.run_id)
            run = await store.run_by_key("", graph.name, "explored")
            assert run is not None
            events = [entry.event for entry in await store.entries(run.run_id)]
            _assert_ended(ended, expected)
            _assert_steps(events, expected, is_whole=ended.status is Status.COMPLETED)
        except Exception as error:
            lines = "\n".join(f"  {choice}" for choice in chooser.faults)
            raise AssertionError(f"{str(error) or repr(error)}\n{mode}, with\n{lines}") from error
    return simulation.commits


async def _assert_settled(store: Store, run_id: RunId) -> None:
    """Nothing is open, and no index tells of the run."""
    run = await store.run(run_id)
    assert run is not None
    assert run.closed_at_ms is not None
    assert run.semaphore == 0
    assert await store.readiness(run_id) == []
    assert await store.inbox(run_id) == []
    assert await store.hooks_waiting(run_id) == []


def _assert_ended(ended: Ended, expected: Expected) -> None:
    payload = ended.payload or b"null"
    if ended.status is Status.COMPLETED:
        assert not expected.failures, f"it must fail: {expected.failures}"
        result = msgspec.json.decode(payload)
        if expected.outputs:
            assert result in expected.outputs
        else:
            job = result or {}
            assert set(job) == set(expected.job)
            assert all(job[name] in values for name, values in expected.job.items())
    elif ended.status is Status.FAILED:
        failure = msgspec.json.decode(payload, type=Failure)
        assert expected.failures, f"it must not fail: {failure}"
        found = failure.type_name.rpartition(":")[2], failure.message
        assert any(
            found[0] == name and found[1].startswith(text) for name, text in expected.failures
        ), f"it fails with {found}, and not with one of {expected.failures}"
    else:
        assert "cancelled" in {name for name, _ in expected.failures}


def _assert_steps(events: list[e.Event], expected: Expected, *, is_whole: bool) -> None:
    """Every activity began, asked, answered and was skipped as it must; of a run that failed, none beyond that."""
    begun = {
        posting.account.removeprefix("step:")
        for event in events
        if isinstance(event, e.Posted) and event.label == "attempt"
        for posting in event.postings[:1]
    }
    asked = [event for event in events if isinstance(event, e.InvokeScheduled)]
    answered = Counter(event.promise_id for event in events if isinstance(event, e.InvokeCompleted))
    skipped = Counter(event.promise_id for event in events if isinstance(event, e.StepSkipped))
    assert set(answered.values()) <= {1}, f"completed more than once: {answered}"
    assert set(skipped.values()) <= {1}, f"skipped more than once: {skipped}"
    assert not set(skipped) & begun
    calls = {each.promise_id: (each.function_name, _decoded(each.payload)) for each in asked}
    assert len(calls) == len(asked), "a step asked twice"
    if not expected.is_exact:
        names = Counter(step.partition(",")[0] for step in begun)
        found = Counter(
            f"{s.partition(',')[0]}: {task}{given}" for s, (task, given) in calls.items()
        )
        _assert_same(names, expected.activities, is_whole)
        _assert_same(found, expected.asked, is_whole)
        return
    _assert_same(Counter(begun), expected.ran, is_whole)
    assert all(expected.calls.get(step) == call for step, call in calls.items())
    assert set(skipped) <= expected.skipped or expected.leaves_turning
    if is_whole:
        assert set(answered) == set(calls) == set(expected.calls)
        assert set(skipped) == expected.skipped or expected.leaves_turning


def _assert_same(found: Counter[str], wanted: Counter[str], is_whole: bool) -> None:
    assert found <= wanted, f"beyond what must be: {found - wanted}"
    if is_whole:
        assert found == wanted, f"missing: {wanted - found}"


def _decoded(payload: bytes | None) -> Any:
    return msgspec.json.decode(payload or b"null")
