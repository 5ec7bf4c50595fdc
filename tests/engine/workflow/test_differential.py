"""One journal per program, however it is run: on either database, warm, replayed at every turn, part by part."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import perdure
from perdure import Engine, Handle, PerdureError, ProgramCall, Retry, Signal, task, workflow
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.replay.identity import child_run_id
from perdure.host.settings import Settings

pytestmark = pytest.mark.asyncio

PATIENCE_S = 60

WORD = Signal("word", str)
REPLY = Signal("reply", str)


class Curtain:
    """Bodies wait here until the script lets them continue, so that a program has one order of events."""

    def __init__(self) -> None:
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def fall(self) -> None:
        self._gates.clear()

    def open_for(self, name: str) -> None:
        self._gates[name].set()

    async def wait(self, name: str) -> None:
        await self._gates[name].wait()


curtain = Curtain()


class Stumble(Exception):
    """What the failing tasks raise."""


@task
async def cue(name: str) -> str:
    """Ends when its turn comes."""
    await curtain.wait(name)
    return name


@task
async def double(number: int) -> int:
    return 2 * number


@task
def half(number: int) -> float:
    perdure.stream("numbers").append(number / 2)
    return number / 2


@task(retry=Retry(attempts=3, first=0))
async def wobble(failures: int) -> int:
    attempt = perdure.info().attempt
    if attempt <= failures:
        raise Stumble("attempt", attempt)
    return attempt


@task
async def stumble(name: str) -> str:
    await curtain.wait(name)
    raise Stumble(name)


@workflow
async def play_chain(number: int) -> list[float]:
    seen: list[float] = []
    for _ in range(4):
        number = await double(number)
        perdure.publish("number", number)
        perdure.stream("numbers").append(number)
        seen += [number, await half(number)]
    return seen


@workflow
async def play_retry() -> list[int]:
    seen = [await wobble(0), await wobble(1), await wobble(2)]
    try:
        seen.append(await wobble(9))
    except Stumble as error:
        seen += [-error.args[1]]
    return seen


@workflow
async def play_timer() -> bool:
    before = perdure.now()
    perdure.random()
    perdure.uuid4()
    await perdure.sleep(0.02)
    return (perdure.now() - before).total_seconds() >= 0.02


@workflow
async def play_patch() -> list[float]:
    seen: list[float] = []
    for number in range(3):
        perdure.publish("number", number)
        if perdure.patched("halves"):
            seen.append(await half(number))
        if perdure.patched(f"doubles {number}"):
            seen.append(await double(number))
    return seen


@workflow
async def play_signal() -> list[str]:
    heard = [await WORD.receive(timeout=60), await WORD.receive()]
    try:
        heard.append(await WORD.receive(timeout=0.02))
    except TimeoutError as error:
        heard.append(str(error))
    return heard


@workflow
async def play_mail() -> list[str]:
    """Signals that come together; the one in between is for a branch that asks later."""

    async def ask() -> str:
        return await WORD.receive() + await WORD.receive(timeout=60)

    async def listen() -> str:
        return await cue("a") + await REPLY.receive()

    return list(await perdure.gather(ask(), listen()))


@workflow
async def play_gather_calls() -> list[str]:
    results = await perdure.gather(
        cue("a"), cue("b"), cue("c"), stumble("d"), return_exceptions=True
    )
    return [repr(result) for result in results]


@workflow
async def play_gather_branches() -> tuple[str, str, str]:
    async def branch(name: str) -> str:
        first = await cue(f"{name}1")
        return first + await cue(f"{name}2")

    return await perdure.gather(branch("a"), branch("b"), cue("c"))


@workflow
async def play_first() -> list[str]:
    cleaned: list[str] = []

    async def loser() -> str:
        try:
            return await cue("never")
        finally:
            cleaned.append(await cue("cleaned"))

    async def winner() -> str:
        return await cue("a") + await cue("b")

    won = await perdure.first(loser(), winner(), cue("never"), perdure.sleep(3600))
    return [str(won), *cleaned, await cue("after")]


@workflow
async def play_join_set() -> list[str]:
    members = perdure.join_set()
    for call in (cue("a"), stumble("b"), cue("c"), cue("d")):
        members.submit(call)
    taken = []
    while len(members):
        try:
            taken.append(str(await members.next()))
        except Stumble as error:
            taken.append(repr(error))
    return taken


@workflow
async def play_child(name: str) -> str:
    word = await WORD.receive()
    return name + word + await cue(name)


@workflow
async def play_parent() -> list[str]:
    started = await perdure.start(play_child("b"))
    started.signal(WORD, "!")
    said = []
    try:
        await play_failing_child()
    except Stumble as error:
        said.append(repr(error))
    return [*said, await started.result()]


@workflow
async def play_failing_child() -> None:
    await stumble("a")


@workflow
async def play_cancel() -> None:
    async def branch(name: str) -> str:
        try:
            return await cue("never")
        finally:
            await cue(name)

    try:
        await perdure.gather(branch("a"), branch("b"), perdure.sleep(3600))
    finally:
        await cue("c")
        await perdure.sleep(0.01)


@workflow
async def play_failure() -> None:
    try:
        await stumble("a")
    except Stumble:
        await double(1)
    await wobble(9)


Script = Callable[[Engine, Handle[Any]], Awaitable[None]]


class Program(NamedTuple):
    call: Callable[[], ProgramCall[Any]]
    script: Script
    outcome: object
    children: tuple[str, ...] = ()
    """The steps that are runs of their own."""


async def until(run: Handle[Any], is_it: Callable[[e.Event], bool]) -> None:
    """Returns when the journal holds such an event."""
    async for entry in run.events():
        if is_it(entry.event):
            return


async def until_ended(run: Handle[Any], name: str) -> None:
    """Returns when the journal holds the outcome of the body of that name."""
    steps = set()
    async for entry in run.events():
        event = entry.event
        if (
            isinstance(event, e.InvokeScheduled)
            and event.payload == b'{"name":"%s"}' % name.encode()
        ):
            steps.add(event.promise_id)
        if isinstance(event, e.InvokeCompleted) and event.promise_id in steps:
            return


def in_order(*names: str) -> Script:
    """Each body ends when the outcome of the one before is in the journal."""

    async def script(_: Engine, run: Handle[Any]) -> None:
        for name in names:
            curtain.open_for(name)
            await until_ended(run, name)

    return script


async def speak(_: Engine, run: Handle[Any]) -> None:
    await until(run, lambda event: isinstance(event, e.ExecutionAwaiting))
    await run.signal(WORD, "one")
    await until(run, lambda event: isinstance(event, e.SignalReceived))
    await run.signal(WORD, "two")


async def speak_at_once(engine: Engine, run: Handle[Any]) -> None:
    await until(run, lambda event: isinstance(event, e.ExecutionAwaiting))
    async with engine.transaction():
        for signal, said in ((WORD, "one"), (REPLY, "yes"), (WORD, "two")):
            await run.signal(signal, said)
    await until(run, lambda event: isinstance(event, e.SignalReceived))
    await in_order("a")(engine, run)


async def let_children_end(engine: Engine, run: Handle[Any]) -> None:
    started, failing = (engine.handle(child_of(run, step)) for step in ("root.0", "root.2"))
    await until(started, lambda event: isinstance(event, e.InvokeStarted))
    await in_order("a")(engine, failing)
    await until(run, lambda event: isinstance(event, e.InvokeCompleted))
    await in_order("b")(engine, started)


async def cancel(engine: Engine, run: Handle[Any]) -> None:
    await until(run, lambda event: isinstance(event, e.InvokeStarted))
    await run.cancel("enough")
    await in_order("b", "a", "c")(engine, run)


def child_of(run: Handle[Any], step: str) -> RunId:
    return child_run_id(run.run_id, StepId(step))


PROGRAMS = {
    "chain": Program(lambda: play_chain(1), in_order(), [2, 1.0, 4, 2.0, 8, 4.0, 16, 8.0]),
    "retry": Program(play_retry, in_order(), [1, 2, 3, -3]),
    "timer": Program(play_timer, in_order(), True),
    "patch": Program(play_patch, in_order(), [0.0, 0, 0.5, 2, 1.0, 4]),
    "signal": Program(play_signal, speak, ["one", "two", "no signal 'word' within 0.02 s"]),
    "prefetched messages": Program(play_mail, speak_at_once, ["onetwo", "ayes"]),
    "gather of calls": Program(
        play_gather_calls,
        in_order("c", "a", "d", "b"),
        ["'a'", "'b'", "'c'", "Stumble('d')"],
    ),
    "gather of branches": Program(
        play_gather_branches,
        in_order("b1", "a1", "a2", "c", "b2"),
        ("a1a2", "b1b2", "c"),
    ),
    "first": Program(
        play_first,
        in_order("a", "b", "cleaned", "after"),
        ["ab", "cleaned", "after"],
    ),
    "join set": Program(
        play_join_set, in_order("c", "b", "d", "a"), ["c", "Stumble('b')", "d", "a"]
    ),
    "children": Program(
        play_parent, let_children_end, ["Stumble('a')", "b!b"], ("root.0", "root.2")
    ),
    "cancel": Program(play_cancel, cancel, "RunCancelled: run 'root' was cancelled: enough"),
    "failure": Program(play_failure, in_order("a"), "Stumble: ('attempt', 3)"),
}


class Account(NamedTuple):
    """All that a program did, without what chance and the clock decided."""

    journals: dict[str, list[tuple[str, dict[str, Any]]]]
    published: dict[str, Any]
    streamed: list[tuple[int, str, int, Any]]
    outcome: object


ZEROED = frozenset(("fire_at_ms", "retry_at_ms", "time_us", "value", "root"))


def spoken(event: e.Event, names: dict[RunId, str]) -> tuple[str, dict[str, Any]]:
    """The event with names in place of runs; a message is shown by its presence."""
    fields = {}
    for field in event.__struct_fields__:
        value = getattr(event, field)
        if field in ZEROED:
            value = 0
        elif field == "guid":
            value = value is not None
        elif isinstance(value, bytes):
            value = renamed(value.decode(), names)
        elif isinstance(value, str):
            value = renamed(value, names)
        fields[field] = value
    return type(event).__name__, fields


def renamed(text: str, names: dict[RunId, str]) -> str:
    for run_id, name in names.items():
        text = text.replace(run_id, name)
    return text


async def account_of(program: Program, url: str, settings: Settings) -> Account:
    """Run the program on an engine of its own, along its script."""
    curtain.fall()
    async with asyncio.timeout(PATIENCE_S), Engine(url, settings=settings) as engine:
        run = await engine.start(program.call())
        await program.script(engine, run)
        names = {run.run_id: "root"} | {child_of(run, step): step for step in program.children}
        outcome: object
        try:
            outcome = await run.result()
        except (PerdureError, Stumble) as error:
            outcome = f"{type(error).__name__}: {renamed(str(error), names)}"
        journals = {
            name: [spoken(entry.event, names) async for entry in engine.handle(run_id).events()]
            for run_id, name in names.items()
        }
        audit, verification = await engine.audit(), await engine.verify()
        assert (audit.findings, verification.findings) == ([], [])
        assert audit.runs == len(names)
        chunks = [chunk async for chunk in run.stream("numbers", completed_only=True)]
        streamed = [(each.offset, str(each.step), each.attempt, each.value) for each in chunks]
        return Account(journals, await run.published(), streamed, outcome)


WAYS = {
    "warm": Settings(),
    "always replayed": Settings(warm_memory=0),
    "stepwise": Settings(stepwise=True),
    "stepwise and always replayed": Settings(stepwise=True, warm_memory=0),
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        address: str = request.getfixturevalue("emptied_postgres")
        return address
    return f"sqlite:///{tmp_path}/plays.db"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_has_one_journal(name: str, way: str, url: str) -> None:
    program = PROGRAMS[name]
    reference = await account_of(program, "sqlite:///:memory:", Settings())
    assert reference.outcome == program.outcome
    assert await account_of(program, url, WAYS[way]) == reference
