"""What a machine makes of a journal that stops between the phases of a step."""

from typing import Any

import msgspec
import pytest

from perdure.authoring.context import Info
from perdure.authoring.graphs.program import GraphProgram
from perdure.core.codec import JsonCodec
from perdure.core.ids import Guid, StepId, message_guid, new_run_id
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.identity import signal_guid, timer_guid
from perdure.engine.graph.machine import GraphMachine
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.runs.messages import is_hook_timeout
from perdure.testing.explorer import VirtualSources
from tests.engine.graph.waiting import patient_key, patient_run, sleeps
from tests.engine.graph.working import awaits_no_hook

RUN = new_run_id(1_700_000_000_000, bytes(10))
HOOK = StepId("h,0,0")


def machine_of(program: GraphProgram[..., Any], recorded: list[e.Event]) -> GraphMachine:
    info = Info(RUN, program.name, program.version, None, StepId("root"))
    return GraphMachine(program, info, JsonCodec(), VirtualSources(), KnownPrograms(), recorded)


def started(program: GraphProgram[..., Any]) -> e.ExecutionStarted:
    trigger, guid = program.lowered.trigger.step(()), message_guid(RUN, "start")
    return e.ExecutionStarted(
        program.name, program.digest, "", trigger=trigger, guid=guid, payload=b"{}"
    )


def taken(machine: GraphMachine) -> list[e.Event]:
    return [change.event for change in machine.take_changes()]


def signal(value: int) -> e.SignalDelivered:
    guid = signal_guid(RUN, "go", str(value))
    return e.SignalDelivered("go", 1, guid, payload=str(value).encode())


def entry(guid: Guid, events: list[e.Event]) -> list[e.Event]:
    """Those that count an entry of the hook for that message."""
    return [
        event
        for event in events
        if isinstance(event, e.Posted) and event.label == "entry" and guid in str(event)
    ]


def test_answer_with_durable_entry_precedes_any_other() -> None:
    first = machine_of(patient_run, [])
    first.feed(started(patient_run))
    journal = taken(first)
    limit = timer_guid(RUN, HOOK)
    first.feed(e.TimerFired(HOOK, limit))
    journal += entry(limit, taken(first))  # its host died here
    second = machine_of(patient_run, journal)
    second.replay()
    second.feed(signal(7))
    kept = taken(second)
    assert [type(event) for event in kept] == [e.SignalDelivered]
    second.feed(e.TimerFired(HOOK, limit))
    after = taken(second)
    assert isinstance(after[0], e.TimerFired)
    assert not entry(limit, after)
    begun = [event.promise_id for event in after if isinstance(event, e.InvokeScheduled)]
    assert begun == ["b,0,0,0"]


def test_signal_to_a_step_that_has_ended_is_refused() -> None:
    machine = machine_of(patient_key, [])
    machine.feed(started(patient_key))
    journal = taken(machine)
    assert machine.takes_signal(HOOK)
    assert not machine.takes_signal(StepId("h,0,1"))
    limit = timer_guid(RUN, HOOK)
    machine.feed(e.TimerFired(HOOK, limit))
    assert not machine.takes_signal(HOOK)
    assert machine.takes_signal(None)
    journal += entry(limit, taken(machine))  # its host died here
    entered = machine_of(patient_key, journal)
    entered.replay()
    assert HOOK in entered.steps
    assert not entered.takes_signal(HOOK)


def test_entry_attempt_is_counted_again_after_a_crash() -> None:
    first = machine_of(patient_run, [])
    first.feed(started(patient_run))
    journal = taken(first)
    cut = next(n for n, event in enumerate(journal) if "attempt" in str(event)) + 1
    second = machine_of(patient_run, journal[:cut])
    second.replay()
    again, scheduled = taken(second)
    assert again == journal[cut - 1]
    assert isinstance(scheduled, e.TimerScheduled)


@pytest.mark.parametrize(
    ("program", "given"),
    [(patient_run, b"{}"), (awaits_no_hook, b'{"x":1}')],
    ids=["hook", "await"],
)
def test_hundredth_entry_attempt_fails_the_run(
    program: GraphProgram[..., Any], given: bytes
) -> None:
    first = machine_of(program, [])
    first.feed(msgspec.structs.replace(started(program), payload=given))
    journal = taken(first)
    cut = next(n for n, event in enumerate(journal) if "attempt" in str(event)) + 1
    again = journal[cut - 1]
    for attempts, is_last in ((98, False), (99, True)):
        machine = machine_of(program, [*journal[:cut], *([again] * (attempts - 1))])
        machine.replay()
        failed = [event for event in taken(machine) if isinstance(event, e.ExecutionFailed)]
        assert bool(failed) is is_last
        for each in failed:
            assert each.payload is not None
            assert b"attempts exhausted (99 of 99)" in each.payload
            assert RUN.encode() in each.payload


def test_pending_transition_is_completed_before_another_fact() -> None:
    machine = machine_of(patient_run, [])
    machine.feed(started(patient_run))
    answers = []
    for is_over in (False, True):
        machine.is_turn_over = is_over
        answers.append(machine.takes_more)
    taken(machine)
    assert [*answers, machine.takes_more] == [True, False, True]


def test_hook_timeout_is_delivered_after_signals_in_its_mailbox() -> None:
    limit = Message(RUN, timer_guid(RUN, HOOK), "timer", 0, 0, HOOK)
    for program, is_after in ((patient_key, True), (patient_run, False)):
        machine = machine_of(program, [])
        machine.feed(started(program))
        assert is_hook_timeout(machine, limit) is is_after


def test_zero_sleep_recorded_as_a_timer_stays_a_timer() -> None:
    machine = machine_of(sleeps, [])
    machine.feed(msgspec.structs.replace(started(sleeps), payload=b'{"x":60}'))
    journal = taken(machine)
    first = msgspec.structs.replace(started(sleeps), payload=b'{"x":0}')
    again = machine_of(sleeps, [first, *(_lasting(event) for event in journal[1:])])
    again.replay()
    assert not again.take_changes()
    assert list(again.promises) == ["h,0,0"]


def _lasting(event: e.Event) -> e.Event:
    """As an earlier version wrote a sleep of nothing."""
    if isinstance(event, e.TimerScheduled):
        return msgspec.structs.replace(event, duration_ms=0)
    return event
