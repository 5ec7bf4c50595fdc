"""The crash explorer for programs: your workflow or graph, under every schedule of faults.

A real host runs the program on an in-memory store and on a virtual clock, which moves only when the host has nothing
to do. At every commit the host may die just before or just after it, or lose its runs to another host. At every wait
the run may be evicted from memory. Messages may come twice or in another order, and a lease on queued work may end
early. After each schedule the run must have ended as it does without faults, the books must balance, and no step may
have begun after its completion or before its intent was durable.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from perdure.authoring.program import Program, ProgramCall
from perdure.authoring.registry import register
from perdure.client.runs.handle import Handle
from perdure.core.errors import InputError, RunExists
from perdure.core.ids import RunId
from perdure.core.journal.state import TERMINAL, Status
from perdure.host.host import Host
from perdure.host.runs.batch import RunStart
from perdure.host.settings import Settings
from perdure.testing.checkers import assert_sound
from perdure.testing.explorer import Exploration, OpenStore, ScheduleFailed, memory_store
from perdure.testing.front_ends import sending_front_end, start_by_front_end
from perdure.testing.graphs import JournalCounts, ReplayCache, differences
from perdure.testing.host_parts import OutsideHost
from perdure.testing.schedule import Chooser, FaultSchedules
from perdure.testing.script import After, Script, ScriptFunction
from perdure.testing.simulation import Simulation, Variant
from perdure.testing.streams import Streamed, streamed
from perdure.testing.user_tables import Tables

MODES: dict[str, Settings] = {
    "warm": Settings(probation=0),
    "always replayed": Settings(warm_memory=0, probation=0),
    "stepwise": Settings(stepwise=True, probation=0),
}

WRONG_CLOCKS = "wrong clocks"
"""A mode that is used only if it is named: the clocks of hosts and senders differ, hosts receive messages in the order
of the store, and the owner of the run may send some of them itself."""

FRONT_ENDS = "front ends"
"""A mode that is used only if it is named: a front end starts the run and sends to it, and hosts claim the unowned run.
A host may lack the program, and a message may be sent twice."""

HINTED = "hinted"
"""A mode that is used only if it is named: hosts and the script's sender give each other hints, each of which may be
lost, late or doubled."""

ONE_SLOT = "one slot"
"""A mode that is used only if it is named: a host executes one task at a time, so steps wait for the slot."""

NAMED_MODES = (WRONG_CLOCKS, FRONT_ENDS, HINTED)

_SLOT_MODES = {ONE_SLOT: Settings(concurrency=1, threads=1, probation=0)}

LONGEST_S = 20.0
"""Real time after which a schedule counts as stuck, in seconds."""


class Ended(NamedTuple):
    """How a run ended; the argument of a `check`."""

    status: Status
    """Compares equal to its text: "completed", "failed" or "cancelled"."""
    payload: bytes | None
    """The result, or the failure, as the journal holds it: JSON."""
    streams: Streamed = {}  # noqa: RUF012 - never changed
    """The completed chunks of each stream as JSON, by the stream's name and the step that appended them."""
    journals: JournalCounts = {}  # noqa: RUF012 - never changed
    """The events that graph runs journaled."""

    @property
    def value(self) -> Any:
        """The decoded payload; for a failure, a dict with `type` and `message`."""
        return None if self.payload is None else msgspec.json.decode(self.payload)

    def __str__(self) -> str:
        text = (self.payload or b"").decode(errors="replace")
        streams = f", having streamed {self.streams}" if self.streams else ""
        return f"{self.status} {text[:300]}{streams}"


Check = Callable[[Ended], None]
"""Asserts how a run must end."""

ENDINGS = ("completed", "failed", "cancelled")


class Race(NamedTuple):
    """A check of a run whose ending may depend on faults: only the check decides, not the ending without faults."""

    check: Check


async def run_once(simulation: Simulation, call: ProgramCall[Any]) -> Ended:
    """Start the program, and let one host after the other advance it until no run is open."""
    program = call.definition
    assert isinstance(program, Program)  # noqa: S101 - refused before
    register(program)
    call.use()
    start = RunStart(program, simulation.codec.encode(call.arguments), key="explored")
    if simulation.explored_program is None:
        outside = OutsideHost(simulation)
        await outside.open_hints()
        sender: Host = outside
        run_id = await _start_by_host(simulation, start, sender)
    else:
        sender = sending_front_end(simulation)
        run_id = await _start_by_front_ends(simulation, start, sender)
    while simulation.open:
        await simulation.new_host().live()
    sender.kill()
    run = await simulation.store.chain_end(run_id)
    assert run is not None and run.status in TERMINAL  # noqa: S101, PT018 - it is not open
    (last,) = await simulation.store.entries(run.run_id, run.seq - 1, run.seq)
    await simulation.followers.check_kept()
    simulation.violations += await simulation.graphs.left_over()
    simulation.violations += await simulation.artifacts.left_over()
    streams = await streamed(simulation.store, run_id)
    return Ended(run.status, last.payload, streams, simulation.graphs.journals())


async def _start_by_host(simulation: Simulation, start: RunStart, sender: Host) -> RunId:
    """Start the run by one host after the other, until one succeeds, and let that host advance it."""
    while True:
        host = simulation.new_host()
        run_id: RunId | None
        try:
            _repeat_run_id(simulation)
            run_id = await host.survive(host.begin_run(start))
        except RunExists as taken:
            run_id = RunId(taken.run_id)
        if run_id is not None:
            await _open_script(simulation, Handle(sender, run_id, start.workflow))
        await host.live()
        if run_id is not None:
            return run_id


async def _start_by_front_ends(simulation: Simulation, start: RunStart, sender: Host) -> RunId:
    """Start the run by one front end after the other, until one succeeds. No host owns it."""
    run_id: RunId | None = None
    while run_id is None:
        try:
            _repeat_run_id(simulation)
            run_id = await start_by_front_end(simulation, start)
        except RunExists as taken:
            run_id = RunId(taken.run_id)
    await _open_script(simulation, Handle(sender, run_id, start.workflow))
    return run_id


def _repeat_run_id(simulation: Simulation) -> None:
    if not simulation.has_runs:
        # No earlier start became durable. Repeat its run id: the keys of steps are derived from it.
        simulation.sources.restart_entropy()


async def _open_script(simulation: Simulation, handle: Handle[Any]) -> None:
    simulation.script.open(handle)
    await simulation.script.play(simulation.commits)
    simulation.may_lose_runs = True


@asynccontextmanager
async def _time_limit(simulation: Simulation) -> AsyncIterator[None]:
    """Limit a schedule to `LONGEST_S`. The error names the tasks that still run."""
    limit = asyncio.timeout(LONGEST_S)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        what = f"the run is not over after {LONGEST_S:g} s"
        if simulation.unfinished:
            what += (
                f", and these tasks still run: {', '.join(sorted(simulation.unfinished))}\n"
                "in an exploration tasks and their timeouts take real time, and timers wait for tasks: "
                "let tasks end soon, or give them a short timeout there, such as 0.01"
            )
        raise AssertionError(what) from None


def _ending_check(expected: Check | str | None) -> Check:
    """The check of the ending. By default a run must complete: that it always fails the same way proves little."""
    if callable(expected):
        return expected
    status = "completed" if expected is None else expected
    if status not in ENDINGS:
        raise InputError(
            f"check={expected!r} is not how a run can end",
            f"pass one of {', '.join(map(repr, ENDINGS))}, or a function that gets an Ended",
        )

    def check(ended: Ended) -> None:
        if ended.status.value != status:
            raise AssertionError(
                f"the run ended {ended}, but must end {status!r}\n"
                f"if this ending is right, pass check={ended.status.value!r}"
            )

    return check


def _check_schedule(simulation: Simulation, ended: Ended, expected: Ended | None) -> None:
    """Raise if the schedule had violations, or if the run ended otherwise than expected."""
    if simulation.violations:
        raise AssertionError("\n".join(simulation.violations))
    if expected is None or ended == expected:
        return
    journaled = "\n".join(differences(ended.journals, expected.journals))
    raise AssertionError(
        f"the run ended {ended}, but without faults it ends {expected}\n{journaled}".rstrip()
    )


def _failed(
    error: Exception, violations: Sequence[str], mode: str, chooser: Chooser
) -> ScheduleFailed:
    faults = "\n".join(f"  {choice}" for choice in chooser.faults) or "  (no fault)"
    text = str(error) or repr(error)
    what = "\n".join([each for each in violations if each not in text] + [text])
    return ScheduleFailed(f"{what}\n{mode}, under the schedule\n{faults}")


async def explore_workflow(
    make_call: Callable[[], ProgramCall[Any]],
    *,
    script: ScriptFunction | After | None = None,
    queues: Sequence[str] = (),
    max_faults: int = 1,
    modes: Sequence[str] = tuple(MODES),
    open_store: OpenStore = memory_store,
    check: Check | Race | str | None = None,
) -> Exploration:
    """Run the workflow or graph that `make_call` calls under every schedule of at most `max_faults` faults.

    `script` acts on the run from outside, through its handle: once it has started, or `After` a number of commits.
    `queues` are the queues of its tasks. `modes` are ways to run it: "warm", "always replayed" and "stepwise"; only if
    named also "wrong clocks", where the clocks of hosts and senders differ, "front ends", where an engine that hosts no
    run starts it and sends to it, "hinted", where hosts and senders give each other hints, of which some are lost, late
    or doubled, and "one slot", where a host executes one task at a time. `open_store` opens the store of each schedule;
    `Tables` opens one with your own tables.

    The run must complete. If it must end otherwise, pass "failed" or "cancelled" as `check`, or a function that asserts
    how it ended. The run must end as it does without faults, unless `check` is a `Race`. Raises `ScheduleFailed` at the
    first schedule that fails; its text lists the faults.
    """
    is_race = isinstance(check, Race)
    must_end = _ending_check(check.check if isinstance(check, Race) else check)
    is_strict = open_store is memory_store or isinstance(open_store, Tables)
    expected: Ended | None = None
    replays = ReplayCache()
    total = Exploration(0, 0, frozenset())
    for mode in modes:
        settings = _SLOT_MODES.get(mode) or MODES["warm" if mode in NAMED_MODES else mode]
        for chooser in FaultSchedules(max_faults, is_strict=is_strict):
            violations: list[str] = []
            call = make_call()
            try:
                async with open_store() as store:
                    simulation = Simulation(
                        *(store, chooser, settings, tuple(queues), Script(script), replays),
                        Variant(
                            mode == WRONG_CLOCKS,
                            call.definition.name if mode == FRONT_ENDS else None,
                            mode == HINTED,
                        ),
                    )
                    violations = simulation.violations
                    async with _time_limit(simulation):
                        ended = await run_once(simulation, call)
                    expected = None if is_race else expected or ended
                    _check_schedule(simulation, ended, expected)
                    must_end(ended)
                    await assert_sound(store)
            except Exception as error:
                raise _failed(error, violations, mode, chooser) from error
            total = Exploration(
                total.schedules + 1,
                total.commits + simulation.commits,
                total.faults | set(map(str, chooser.faults)),
                total.endings | {str(ended)},
            )
    return total
