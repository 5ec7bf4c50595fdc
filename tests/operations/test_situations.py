"""The situations that an operation must survive, each with processes that really crash, hang or give up.

All end in the same state: the operation is in the backups, its frames, temporary files and locks are gone, the
survivors have cleaned up each of their calls once, and the log has all events in order.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from perdure.operations import OperationState
from tests.operations.actor import SHORT
from tests.operations.conftest import place_of
from tests.operations.stage import Actor, Refused, Stage, door

FAILED, COMPLETED = OperationState.FAILED, OperationState.COMPLETED


@pytest.fixture(scope="module")
def nursery() -> Iterator[str]:
    with door() as path:
        yield path


@pytest.fixture(
    params=[
        "files",
        "sqlite",
        pytest.param("postgres", marks=[pytest.mark.deep, pytest.mark.postgres]),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    return place_of(request, tmp_path)


@pytest.fixture
async def stage(nursery: str, place: dict[str, str], tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(nursery, place, tmp_path)
    yield made
    for actor in made.actors:
        await actor.kill()


def begun(*names: str) -> list[str]:
    """The log of participants that have joined."""
    return [f"OPERATION_CREATED {names[0]}", *(f"PARTICIPANT_JOINED {name}" for name in names[1:])]


def started(*names: str) -> list[str]:
    return [f"CALL_STARTED {name}" for name in names]


def assert_failed(events: list[str], before: list[str], survivors: set[str]) -> None:
    """After a crash: detected and coordinated by a survivor, cleaned up by the others, and then the end."""
    assert events[: len(before)] == before
    detected, coordinated, *cleaned, ended = events[len(before) :]
    coordinator = coordinated.removeprefix("CLEANUP_STARTED ")
    assert coordinator in survivors
    assert detected == f"CRASH_DETECTED {coordinator}"
    assert sorted(cleaned) == [
        f"PARTICIPANT_CLEANED_UP {name}" for name in sorted(survivors - {coordinator})
    ]
    assert ended == f"OPERATION_FAILED {coordinator}"


async def fails(actor: Actor) -> tuple[str, str]:
    """The type and the reason of the failure that the actor receives."""
    with pytest.raises(Refused) as caught:
        await actor("fail")
    kind, reason = caught.value.args
    return kind, reason


# The initiator crashes


async def test_initiator_crashes_at_the_start(stage: Stage) -> None:
    """It had no call, so no participant detects its crash. A recovery from outside ends the operation."""
    a, b = await stage.crew("a", "b")
    await b("start", "work")
    await a.kill()
    await asyncio.sleep(1.2 * SHORT.staleness)
    await b("end", "work")
    await b.go()
    assert stage.resources() == {"a-shared"}
    async with stage.outside() as ledger:
        await ledger.recover_operation(stage.operation_id)
    data = await stage.ended(FAILED)
    assert data.failure_reason == "aborted by 'perdure': it has no live participants"
    assert stage.cleaned() == Counter()
    assert await stage.events() == [
        *begun("a", "b"),
        *started("b"),
        "CALL_ENDED b",
        "OPERATION_ABORTED perdure",
        "CLEANUP_STARTED perdure",
        "OPERATION_FAILED perdure",
    ]


async def test_initiator_crashes_during_a_call(stage: Stage) -> None:
    a, b = await stage.crew("a", "b")
    lost = await a("start", "outer")
    await b("start", "work")
    await a.kill()
    assert await fails(b) == ("OperationFailed", f"participant 'a' (pid {a.pid}) crashed")
    data = await stage.ended(FAILED)
    assert data.crashed_call_ids == (lost,)
    assert stage.cleaned() == stage.notified() == {"b/work": 1}
    assert_failed(await stage.events(), begun("a", "b") + started("a", "b"), {"b"})


async def test_initiator_crashes_during_a_nested_call(stage: Stage) -> None:
    a, b, c = await stage.crew("a", "b", "c")
    lost = [await a("start", "outer"), await a("start", "inner")]
    await b("start", "nested")
    await c("start", "innermost")
    await a.kill()
    await fails(b)
    await fails(c)
    data = await stage.ended(FAILED)
    assert data.crashed_call_ids == tuple(lost)
    assert stage.cleaned() == {"b/nested": 1, "c/innermost": 1}
    before = begun("a", "b", "c") + started("a", "a", "b", "c")
    assert_failed(await stage.events(), before, {"b", "c"})


# A participant crashes


async def test_participant_crashes_at_the_start(stage: Stage) -> None:
    """It had no call yet, and so it had nothing that could be lost."""
    a, b = await stage.crew("a", "b")
    await a("start", "outer")
    await b.kill()
    await asyncio.sleep(1.2 * SHORT.staleness)
    await a("end", "outer")
    await a("complete")
    data = await stage.ended(COMPLETED)
    assert data.crashed_call_ids == ()
    assert stage.cleaned() == Counter()
    assert await stage.events() == [
        *begun("a", "b"),
        *started("a"),
        "CALL_ENDED a",
        "OPERATION_COMPLETED a",
    ]


async def test_participant_crashes_in_a_call(stage: Stage) -> None:
    a, b, c = await stage.crew("a", "b", "c")
    await a("start", "outer")
    lost = await b("start", "work")
    await c("start", "work")
    await b.kill()
    assert await fails(a) == ("OperationFailed", f"participant 'b' (pid {b.pid}) crashed")
    data = await stage.ended(FAILED)
    assert data.crashed_call_ids == (lost,)
    assert stage.cleaned() == stage.notified() == {"a/outer": 1, "c/work": 1}
    assert_failed(await stage.events(), begun("a", "b", "c") + started("a", "b", "c"), {"a", "c"})


async def test_participant_hangs(stage: Stage) -> None:
    """A participant that hangs is declared dead. When it returns it is fenced, and cleans up once too."""
    a, b = await stage.crew("a", "b")
    await a("start", "outer")
    lost = await b("start", "work")
    b.stop()
    assert await fails(a) == ("OperationFailed", f"participant 'b' (pid {b.pid}) crashed")
    b.resume()
    kind, _ = await fails(b)
    assert kind == "ParticipantFenced"
    data = await stage.ended(FAILED)
    assert data.crashed_call_ids == (lost,)
    assert stage.cleaned() == stage.notified() == {"a/outer": 1, "b/work": 1}
    assert_failed(await stage.events(), begun("a", "b") + started("a", "b"), {"a"})


# The world outside


async def test_a_worker_process_takes_too_long(stage: Stage) -> None:
    """The call fails with its program; the operation continues."""
    a, b = await stage.crew("a", "b")
    await b("start", "work")
    pid = stage.folder / "pid"
    program = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with pytest.raises(Refused, match="CallFailed"):
        await a("run_outside", "slow", program, 1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    await b("end", "work")
    await a("complete")
    await stage.ended(COMPLETED)
    assert stage.cleaned() == {"a/slow": 1}
    assert await stage.events() == [
        *begun("a", "b"),
        *started("b"),
        "CALL_SPAWNED a",
        "CALL_FAILED a",
        "CALL_ENDED b",
        "OPERATION_COMPLETED a",
    ]


async def test_a_worker_process_fails(stage: Stage) -> None:
    """The call fails with the program's error. Its participant can't continue without it, and aborts."""
    a, b = await stage.crew("a", "b")
    await a("start", "outer")
    with pytest.raises(Refused, match=r"exit code 3 .*no disk"):
        await b(
            "run_outside",
            "broken",
            "import sys; print('no disk', file=sys.stderr); sys.exit(3)",
            20,
        )
    await b("abort", "no disk")
    assert await fails(a) == ("OperationFailed", "aborted by 'b': no disk")
    data = await stage.ended(FAILED)
    assert (data.aborted, data.crashed_call_ids) == (True, ())
    assert stage.cleaned() == {"a/outer": 1, "b/broken": 1}
    assert stage.notified() == {"a/outer": 1}
    events = await stage.events()
    assert events[:6] == [
        *begun("a", "b"),
        *started("a"),
        "CALL_SPAWNED b",
        "CALL_FAILED b",
        "OPERATION_ABORTED b",
    ]
    assert events[-1].startswith("OPERATION_FAILED ")


@pytest.mark.parametrize("who", ["a", "b"], ids=["initiator", "participant"])
async def test_a_user_aborts(stage: Stage, who: str) -> None:
    a, b = await stage.crew("a", "b")
    await a("start", "outer")
    await b("start", "work")
    await {"a": a, "b": b}[who]("abort", "changed my mind")
    for actor in (a, b):
        assert await fails(actor) == ("OperationFailed", f"aborted by {who!r}: changed my mind")
    data = await stage.ended(FAILED)
    assert (data.aborted, data.crashed_call_ids) == (True, ())
    assert stage.cleaned() == stage.notified() == {"a/outer": 1, "b/work": 1}
    before = [*begun("a", "b"), *started("a", "b"), f"OPERATION_ABORTED {who}"]
    events = await stage.events()
    coordinator = events[len(before)].removeprefix("CLEANUP_STARTED ")
    (other,) = {"a", "b"} - {coordinator}
    assert events == [
        *before,
        f"CLEANUP_STARTED {coordinator}",
        f"PARTICIPANT_CLEANED_UP {other}",
        f"OPERATION_FAILED {coordinator}",
    ]


# Many calls, many processes, and no live participant


async def test_operation_without_a_supervisor_is_cleaned_up(stage: Stage) -> None:
    """All participants crash. The ledger stays unchanged until a recovery from outside ends the operation."""
    a, b = await stage.crew("a", "b")
    lost = [await a("start", "outer"), await b("start", "work")]
    await a.kill()
    await b.kill()
    left = await stage.seen(lambda _: True)
    await asyncio.sleep(1.2 * SHORT.staleness)
    assert await stage.seen(lambda _: True) == left
    assert stage.resources() == {"a-shared", "a-outer", "b-work"}
    async with stage.outside() as ledger:
        await ledger.recover_operation(stage.operation_id)
    data = await stage.ended(FAILED)
    assert sorted(data.crashed_call_ids) == sorted(lost)
    assert stage.cleaned() == Counter()
    assert await stage.events() == [
        *begun("a", "b"),
        *started("a", "b"),
        "CRASH_DETECTED perdure",
        "CRASH_DETECTED perdure",
        "CLEANUP_STARTED perdure",
        "OPERATION_FAILED perdure",
    ]


async def test_calls_in_parallel(stage: Stage) -> None:
    a, b = await stage.crew("a", "b")
    labels = ["one", "two", "three"]
    for label in labels:
        await a("spawn", label)
    lost = [await b("spawn", label) for label in labels]
    await b.kill()
    await fails(a)
    data = await stage.ended(FAILED)
    assert data.crashed_call_ids == tuple(lost)
    assert stage.cleaned() == {f"a/{label}": 1 for label in labels}
    before = begun("a", "b") + ["CALL_SPAWNED a"] * 3 + ["CALL_SPAWNED b"] * 3
    assert_failed(await stage.events(), before, {"a"})


async def test_crash_in_five_nested_calls_is_cleaned_up(stage: Stage) -> None:
    names = ["a", "b", "c", "d", "e"]
    crew = await stage.crew(*names)
    calls = [await actor("start", f"level{depth}") for depth, actor in enumerate(crew)]
    data = await stage.seen(lambda data: len(data.stack) == 5)
    assert [frame.call_id for frame in data.stack] == calls
    await crew[-1].kill()
    for actor in crew[:-1]:
        await fails(actor)
    data = await stage.ended(FAILED)
    assert data.crashed_call_ids == (calls[-1],)
    assert stage.cleaned() == {f"{name}/level{depth}": 1 for depth, name in enumerate(names[:-1])}
    assert_failed(await stage.events(), begun(*names) + started(*names), set(names[:-1]))


# Crashes in the clean-up itself


async def cleaning(stage: Stage) -> tuple[Actor, Actor, Actor]:
    """Of three participants one crashed; the coordinator and the other one are in their clean-up."""
    crew = await stage.crew("a", "b", "c")
    for actor in crew:
        await actor("start", "work", "gated")
    await crew[2].kill()
    await stage.until(lambda: {"a begins work", "b begins work"} <= set(stage.evidence()))
    data = await stage.seen(lambda data: data.coordinator is not None)
    assert data.coordinator is not None
    first, second = crew[0], crew[1]
    is_first = data.coordinator.participant_id == first.name
    return (first, second, crew[2]) if is_first else (second, first, crew[2])


async def test_a_crash_during_the_clean_up(stage: Stage) -> None:
    coordinator, other, _ = await cleaning(stage)
    await other.kill()
    stage.open_gate(coordinator)
    await stage.ended(FAILED)
    assert stage.evidence().count(f"{coordinator.name} cleaned work") == 1
    assert f"{other.name} cleaned work" not in stage.evidence()
    assert (await stage.events())[6:] == [
        f"CRASH_DETECTED {coordinator.name}",
        f"CLEANUP_STARTED {coordinator.name}",
        f"OPERATION_FAILED {coordinator.name}",
    ]


async def test_the_coordinator_crashes(stage: Stage) -> None:
    coordinator, other, lost = await cleaning(stage)
    await coordinator.kill()
    stage.open_gate(other)
    data = await stage.ended(FAILED)
    assert len(data.crashed_call_ids) == 2
    assert data.failure_reason == f"participant 'c' (pid {lost.pid}) crashed"
    assert stage.evidence().count(f"{other.name} cleaned work") == 1
    assert f"{coordinator.name} cleaned work" not in stage.evidence()
    events = (await stage.events())[6:]
    assert f"PARTICIPANT_CLEANED_UP {other.name}" in events
    events.remove(f"PARTICIPANT_CLEANED_UP {other.name}")
    assert events == [
        f"CRASH_DETECTED {coordinator.name}",
        f"CLEANUP_STARTED {coordinator.name}",
        f"CRASH_DETECTED {other.name}",
        f"COORDINATOR_REPLACED {other.name}",
        f"OPERATION_FAILED {other.name}",
    ]


async def test_a_participant_crashes_while_it_holds_the_lock(stage: Stage) -> None:
    """A process dies while it holds the lock. The kernel releases the lock, and the others continue."""
    a, b, c = await stage.crew("a", "b", "c")
    await a("start", "outer")
    await b("start", "work")
    await c("start", "work")
    c.begin("hold")
    await stage.until(lambda: "c holds the lock" in stage.evidence())
    if "base_path" in stage.place:
        lock = Path(stage.place["base_path"]) / f"{stage.operation_id}.operation.lock"
        assert int(lock.read_text()) == c.pid
    await c.kill()
    await b("end", "work")
    assert await fails(a) == ("OperationFailed", f"participant 'c' (pid {c.pid}) crashed")
    await stage.ended(FAILED)
    assert stage.cleaned() == {"a/outer": 1}
    events = await stage.events()
    assert events[:7] == [*begun("a", "b", "c"), *started("a", "b", "c"), "CALL_ENDED b"]
    assert events[-1].startswith("OPERATION_FAILED ")
