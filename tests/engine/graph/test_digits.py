"""Each kind of activity, phase by phase: its ledger, its message's, and the semaphore, digit for digit."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from perdure import ProgramCall
from perdure.core.graph import model as m
from perdure.core.graph.identity import mailbox_of
from perdure.core.ids import Guid, RunId, StepId, message_guid
from perdure.core.replay.identity import result_guid, signal_guid, timer_guid
from perdure.testing.script import ScriptFunction
from tests.engine.graph.building import START, add, chain, graph, out, say, to_run, to_topic
from tests.engine.graph.flowing import (
    early_unbegun,
    loops,
    spreads,
    stops_itself,
    stops_other_alone,
)
from tests.engine.graph.phases import phases_of
from tests.engine.graph.staying import heard
from tests.engine.graph.waiting import hears, hears_by_key, lasting_run, patient_run, sleeps
from tests.engine.graph.working import (
    awaits_graph,
    awaits_no_hook,
    awaits_too_few_tries,
    bare,
    keyed_with_child,
    queued,
    refused,
    worked,
)

GuidOf = Callable[[RunId], Guid]


def result(step: str) -> GuidOf:
    return lambda run: result_guid(run, StepId(step), 1)


def timer(step: str) -> GuidOf:
    return lambda run: timer_guid(run, StepId(step))


def of_run(kind: str, step: str) -> GuidOf:
    return lambda run: message_guid(run, kind, step)


def sent(topic: str, value: object) -> GuidOf:
    return lambda run: signal_guid(run, topic, f"None {value}")


def start(run: RunId) -> Guid:
    return message_guid(run, "start")


five = graph(
    "five",
    [START, add("two", "1"), m.HookNode(name="n1"), m.HookNode(name="n2")]
    + [m.HookNode(name=f"z{n}", sleep="60") for n in range(4)],
    [("t", "two"), ("two", "n1"), ("two", "n2"), *[("t", f"z{n}") for n in range(4)]],
)
passing = graph("passing", [START, m.HookNode(name="h"), add("a", "1")], chain("t", "h", "a"))
last_pending = graph(
    "last_pending", [START, m.HookNode(name="h", topic="go", pending=True)], [("t", "h")]
)
last_pass = graph("last_pass", [START, m.HookNode(name="h")], [("t", "h")])
tells = graph(
    "tells",
    [START, m.SignalNode(name="s", topic="go", key="'nobody'"), add("a", "1")],
    chain("t", "s", "a"),
)
broadcasts = graph(
    "broadcasts",
    [START, m.SignalNode(name="s", topic="go", all="color", key="'no color'"), out("1")],
    chain("t", "s", "o"),
)


class Case(NamedTuple):
    """What is called, at which step and message to look, and what is to be seen."""

    call: Callable[[], ProgramCall[Any]]
    step: str
    guid_of: GuidOf
    phases: tuple[str, ...]
    script: ScriptFunction | None = None


LEG1 = ("001000000000000 000000000000000 1", "001100000000000 000000000000000 1")
LEG2 = (
    "001100000000001 000000000000001 1",
    "001100000000001 000010000000001 1",
    "001100000000001 000011000000001 1",
)
CLOSING = (
    *LEG2[:2],
    "001100000000001 000111000000001 0",
    "201100000000001 000111100000001 0",
)
ONE_LEG = (
    "001000000000000 000000000000001 1",
    "001100000000000 000010000000001 1",
    "001100000000000 000011000000001 1",
)
ONE_LEG_CLOSING = (
    *ONE_LEG[:2],
    "001100000000000 000111000000001 0",
    "201100000000000 000111100000001 0",
)

CASES = {
    "trigger": Case(
        partial(worked, x=1),
        "t,0",
        start,
        (
            "101100000000001 000010000000000 1",
            "101100000000001 000011000000000 1",
            "101100000000001 000011000000000 0",
        ),
    ),
    "trigger without children": Case(
        bare,
        "t,0",
        start,
        (
            "101100000000001 000010000000000 1",
            "101100000000001 000011000000000 0",
            "101100000000001 000011100000000 0",
        ),
    ),
    "trigger that emits": Case(
        partial(keyed_with_child, c="red"),
        "t,0",
        start,
        (
            "101100000000001 000010000000000 1",
            "101100000000001 000011000000000 1",
            "101100000000001 000011100000000 1",
            "101100000000001 000011100000000 0",
        ),
    ),
    "worker": Case(
        partial(worked, x=1),
        "a,0,0",
        result("a,0,0"),
        (*LEG1, *LEG2, "001100000000001 000011000000001 0"),
    ),
    "worker that closes": Case(
        partial(worked, x=1), "b,0,0,0", result("b,0,0,0"), (*LEG1, *CLOSING)
    ),
    "worker that closes at a threshold": Case(
        early_unbegun,
        "w,0,0",
        result("w,0,0"),
        (
            *LEG1,
            *CLOSING[:2],
            "001100000000001 000111000000001 2",
            "201100000000001 000111100000001 0",
        ),
    ),
    "worker that fails along an edge": Case(refused, "a,0,0", result("a,0,0"), (*LEG1, *CLOSING)),
    "worker on a queue": Case(queued, "a,0,0", result("a,0,0"), (*LEG1, *CLOSING)),
    "worker with two children, of five": Case(
        five,
        "two,0,0",
        result("two,0,0"),
        (
            "001000000000000 000000000000000 5",
            "001100000000000 000000000000000 5",
            "001100000000001 000000000000001 5",
            "001100000000001 000010000000001 5",
            "001100000000001 000011000000001 6",
            *(f"001100000000001 000011000000001 {n}" for n in (5, 4, 3, 2, 1, 0)),
        ),
    ),
    "await": Case(partial(awaits_graph, x=1), "child,0,0", result("child,0,0"), (*LEG1, *CLOSING)),
    "await that is retried": Case(
        awaits_too_few_tries, "child,0,0", result("child,0,0"), (*LEG1, *CLOSING)
    ),
    "await nobody": Case(
        partial(awaits_no_hook, x=1), "child,0,0", result("child,0,0"), (*LEG1, *CLOSING)
    ),
    "hook: sleep": Case(partial(sleeps, x=60), "h,0,0", timer("h,0,0"), (*LEG1, *CLOSING)),
    "hook: sleep of nothing": Case(
        partial(sleeps, x=0), "h,0,0", of_run("pass", "h,0,0"), ONE_LEG_CLOSING
    ),
    "hook: sleep of less than nothing": Case(
        partial(sleeps, x=-1), "h,0,0", of_run("pass", "h,0,0"), ONE_LEG_CLOSING
    ),
    "hook: pending, and it closes": Case(
        last_pending, "h,0,0", sent("go", 7), (*LEG1, *CLOSING), say(to_run("go", 7))
    ),
    "hook: signal to the run": Case(
        hears, "h,0,0", sent("go", 7), (*LEG1, *CLOSING), say(to_run("go", 7))
    ),
    "hook: signal by key": Case(
        partial(hears_by_key, k="k"),
        "h,0,0",
        lambda _: signal_guid(mailbox_of("go", "k"), "go", "7"),
        (*LEG1, *CLOSING),
        say(to_topic("go", "k", 7)),
    ),
    "hook: limit": Case(
        patient_run,
        "h,0,0",
        timer("h,0,0"),
        (*LEG1, *LEG2, "001100000000001 000011000000001 0"),
    ),
    "hook: 202, 200": Case(
        lasting_run,
        "h,0,0",
        sent("go", 7),
        (
            *LEG1,
            "001100000000001 000000000000000 1",
            "001100000000001 000000000000000 2",
            # Both are there: the second is taken while the consequences of the first are under way.
            "001100000000002 000000000000002 2",
            "001100000000002 000010000000002 2",
            "001100000000002 000011000000002 2",
            "001100000000002 000011000000002 1",
            "001100000000002 000011000000002 0",
        ),
        say(to_run("go", 5, 202), to_run("go", 7)),
    ),
    "hook: 202 whose output fails": Case(
        heard,
        "a,0,0",
        sent("go", 0),
        (*LEG1, *LEG2, "001100000000001 000011000000001 0"),
        say(to_run("go", 0, 202)),
    ),
    "hook: pass-through": Case(
        passing,
        "h,0,0",
        of_run("pass", "h,0,0"),
        (*ONE_LEG, "001100000000000 000011000000001 0"),
    ),
    "hook: pass-through that closes": Case(
        last_pass, "h,0,0", of_run("pass", "h,0,0"), ONE_LEG_CLOSING
    ),
    "signal": Case(
        tells, "s,0,0", of_run("pass", "s,0,0"), (*ONE_LEG, "001100000000000 000011000000001 0")
    ),
    "signal to all": Case(broadcasts, "s,0,0", of_run("pass", "s,0,0"), ONE_LEG_CLOSING),
    "cycle": Case(
        partial(loops, n=1),
        "c,0,0,0,0",
        of_run("cycle", "c,0,0,0,0"),
        (
            "001000000000000 000000000000000 1",
            "001100000000001 000000000000000 1",
            "001100000000001 000000000000002 1",
            "001100000000001 000010000000002 1",
            "001100000000001 000111000000002 0",
            "001100000000001 000111100000002 0",
        ),
    ),
    "cycle's hook": Case(
        partial(loops, n=1),
        "h,0,0",
        of_run("cycle", "c,0,0,0,0"),
        (
            "001000000000000 000000000000000 1",
            "001100000000001 000000000000000 1",
            "001100000000002 000000000000002 1",
            "001100000000002 000010000000002 1",
            "001100000000002 000111000000002 0",
            "001100000000002 000111100000002 0",
        ),
    ),
    "interrupt: itself": Case(
        stops_itself,
        "stop,0,0",
        start,
        (
            "001000000000000 000011000000000 2",
            "001100000000000 000011000000000 1",
            "001100000000000 000011000000000 0",
        ),
    ),
    "interrupt: another": Case(
        stops_other_alone, "stop,0,0,0", of_run("pass", "stop,0,0,0"), ONE_LEG_CLOSING
    ),
    "aggregate": Case(
        partial(spreads, xs=[1, 2]), "g,0,0,0,0", of_run("pass", "g,0,0,0,0"), ONE_LEG_CLOSING
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_phases(name: str) -> None:
    case = CASES[name]
    seen = await phases_of(case.call(), case.step, case.guid_of, case.script)
    for phase in seen:
        print(phase.spelled())  # noqa: T201 - for people, with `pytest -s`
    assert [str(phase) for phase in seen] == list(case.phases)
