"""What a machine makes of a journal that stops between the phases of a step."""

from typing import Any

from perdure.authoring.context import Info
from perdure.authoring.graphs.program import GraphProgram
from perdure.core.codec import JsonCodec
from perdure.core.ids import Guid, StepId, message_guid, new_run_id
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.identity import signal_guid, timer_guid
from perdure.engine.graph.machine import GraphMachine
from perdure.engine.programs import Programs
from perdure.engine.replay.facts import is_after_mail
from perdure.testing.explorer import VirtualSources
from tests.engine.graph.waiting import patient_key, patient_run

RUN = new_run_id(1_700_000_000_000, bytes(10))
HOOK = StepId("h,0,0")


def machine_of(program: GraphProgram[..., Any], recorded: list[e.Event]) -> GraphMachine:
    info = Info(RUN, program.name, program.version, None, StepId("root"))
    return GraphMachine(program, info, JsonCodec(), VirtualSources(), Programs(), recorded)


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


def test_answer_whose_entry_is_durable_comes_before_any_other() -> None:
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


def test_signal_for_a_step_is_refused_once_the_step_can_not_take_it() -> None:
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


def test_attempt_that_was_cut_short_is_counted_again() -> None:
    first = machine_of(patient_run, [])
    first.feed(started(patient_run))
    journal = taken(first)
    cut = next(n for n, event in enumerate(journal) if "attempt" in str(event)) + 1
    second = machine_of(patient_run, journal[:cut])
    second.replay()
    again, scheduled = taken(second)
    assert again == journal[cut - 1]
    assert isinstance(scheduled, e.TimerScheduled)


def test_another_fact_waits_until_what_is_left_of_a_turn_is_written() -> None:
    machine = machine_of(patient_run, [])
    machine.feed(started(patient_run))
    answers = []
    for is_over in (False, True):
        machine.is_turn_over = is_over
        answers.append(machine.takes_more)
    taken(machine)
    assert [*answers, machine.takes_more] == [True, False, True]


def test_the_end_of_a_hooks_time_comes_after_its_mail() -> None:
    limit = Message(RUN, timer_guid(RUN, HOOK), "timer", 0, 0, HOOK)
    for program, is_after in ((patient_key, True), (patient_run, False)):
        machine = machine_of(program, [])
        machine.feed(started(program))
        assert is_after_mail(machine, limit) is is_after
