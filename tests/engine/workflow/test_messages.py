"""Messages that stand in line, and what a turn makes of them: no host, no store."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import perdure
from perdure import ProgramCall, Signal, task, workflow
from perdure.authoring.context import Info
from perdure.core.codec import JsonCodec
from perdure.core.ids import HostId, StepId, new_run_id
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.identity import cancel_guid, result_guid, signal_guid, timer_guid
from perdure.engine.runs import messages as run_messages
from perdure.engine.runs.effects import Acknowledge, ContinueAsNew, RecordedChange
from perdure.engine.runs.prefetched import NO_MESSAGES
from perdure.engine.runs.record import Diverged
from perdure.engine.runs.warm import WarmRun
from perdure.engine.workflow.machine import WorkflowMachine
from perdure.host.runs.batch import RunStart
from perdure.store.commit.bundle import Bundle
from perdure.testing.explorer import VirtualSources

SOURCES = VirtualSources()
RUN = new_run_id(1, bytes(10))

word = Signal("at_hand.word", str)
number = Signal("at_hand.number", int)


@task(name="at_hand.fetched", queue="elsewhere")
async def fetched() -> int:
    return 1


@workflow(name="at_hand.asking")
async def asking() -> list[object]:
    return [await fetched(), await word.receive()]


@workflow(name="at_hand.not_asking")
async def not_asking() -> list[object]:
    return [await fetched(), await fetched()]


@workflow(name="at_hand.patient")
async def patient() -> list[object]:
    return [await fetched(), await word.receive(timeout=60)]


@workflow(name="at_hand.branching")
async def branching() -> list[object]:
    async def hear(signal: Signal[Any], *, after: bool = False) -> object:
        if after:
            await fetched()
        return await signal.receive()

    return list(await perdure.gather(hear(word), hear(word, after=True), hear(number, after=True)))


@workflow(name="at_hand.chaining")
async def chaining(turn: int) -> int:
    await fetched()
    heard = await number.receive()
    return heard if turn else await perdure.continue_as_new(chaining(1))


@workflow(name="at_hand.tidying")
async def tidying() -> None:
    try:
        await fetched()
    finally:
        await word.receive()


def new_machine(call: ProgramCall[Any], recorded: Sequence[e.Event] = ()) -> WorkflowMachine:
    info = Info(RUN, call.definition.name, "", None, StepId("root"))
    program: Any = call.definition
    call.use()
    return WorkflowMachine(program, info, JsonCodec(), SOURCES, recorded)


def write(run: WarmRun) -> list[RecordedChange]:
    changes = run.machine.take_changes()
    run.write(Bundle(), changes, SOURCES, lambda _: None)
    return changes


def begun(make_call: Callable[[], ProgramCall[Any]]) -> tuple[WarmRun, list[e.Event]]:
    """A run at its first wait, and its journal."""
    call = make_call()
    program: Any = call.definition
    start = RunStart(program, JsonCodec().encode(call.arguments))
    machine = new_machine(call)
    machine.feed(start.event(RUN))
    run = WarmRun(machine, start.row(RUN, 0, HostId("here")))
    return run, events(write(run))


def events(changes: Sequence[RecordedChange]) -> list[e.Event]:
    return [change.event for change in changes]


def said(signal: Signal[Any], value: object, sender: str = "1") -> Message:
    payload = JsonCodec().encode(value)
    guid = signal_guid(RUN, signal.name, sender)
    return Message(RUN, guid, f"signal:{signal.name}", 0, 0, payload=payload)


def result(step: str = "root.0") -> Message:
    return Message(RUN, result_guid(RUN, StepId(step), 1), "completed", 0, 0, StepId(step), b"1")


CANCEL = Message(RUN, cancel_guid(RUN), "cancel", 0, 0, payload=b"enough")
LATE = Message(RUN, timer_guid(RUN, StepId("root.9")), "timer", 0, 0, StepId("root.9"))

RESUMED = [e.InvokeStarted, e.InvokeCompleted, e.ExecutionResumed]
HEARD = [e.SignalDelivered, e.SignalReceived]


def kinds(changes: Sequence[RecordedChange]) -> list[type[e.Event]]:
    return [type(change.event) for change in changes]


def test_a_signal_behind_the_result_is_delivered_where_the_program_asks() -> None:
    run, _ = begun(asking)
    signal = said(word, "a")
    assert run_messages.take_messages(run, result(), [signal]) == 2
    changes = write(run)
    assert kinds(changes) == [*RESUMED, *HEARD, e.ExecutionCompleted]
    delivered = changes[3]
    assert delivered.effects == (Acknowledge(signal.guid),)
    assert delivered.event == e.SignalDelivered(word.name, 1, signal.guid, payload=b'"a"')
    assert changes[-1].event == e.ExecutionCompleted(released=1, payload=b'[1,"a"]')
    assert run.machine.prefetched is NO_MESSAGES


def test_no_timer_is_set_for_a_prefetched_signal() -> None:
    run, _ = begun(patient)
    assert run_messages.take_messages(run, result(), [said(word, "a")]) == 2
    assert kinds(write(run)) == [*RESUMED, *HEARD, e.ExecutionCompleted]


def test_signals_of_other_names_are_delivered_first_and_buffered() -> None:
    run, _ = begun(asking)
    line = [said(number, 1), said(number, 2, "2"), said(word, "a")]
    assert run_messages.take_messages(run, result(), line) == 4
    delivered = [e.SignalDelivered] * 2
    assert kinds(write(run)) == [*RESUMED, *delivered, *HEARD, e.ExecutionCompleted]


@pytest.mark.parametrize("between", [LATE, CANCEL], ids=["a late timer", "a cancel"])
def test_no_message_overtakes_another(between: Message) -> None:
    run, _ = begun(asking)
    run_messages.take_messages(run, result(), [said(number, 1), between, said(word, "a")])
    asked_too_early = [*RESUMED, e.SignalDelivered, e.ExecutionAwaiting]
    assert kinds(write(run))[:5] == asked_too_early


def test_a_duplicate_ends_the_prefetched_messages() -> None:
    run, _ = begun(asking)
    early = said(number, 1)
    assert run_messages.take_messages(run, early, []) == 1
    write(run)
    assert run_messages.take_messages(run, result(), [early, said(word, "a")]) == 1
    assert kinds(write(run)) == [*RESUMED, e.ExecutionAwaiting]


def test_the_longest_waiting_promise_gets_the_signal() -> None:
    run, _ = begun(branching)
    line = [result("root.2.0"), said(word, "a"), said(word, "b", "2"), said(number, 1)]
    assert run_messages.take_messages(run, result("root.1.0"), line) == 5
    last = write(run)[-1].event
    assert isinstance(last, e.ExecutionCompleted)
    assert last.payload == b'["a","b",1]'


def test_the_next_run_inherits_signals_that_were_not_received() -> None:
    run, _ = begun(lambda: chaining(0))
    line = [said(word, "a"), said(number, 1), said(word, "b", "2")]
    assert run_messages.take_messages(run, result(), line) == 3
    *_, birth = write(run)[-1].effects
    assert isinstance(birth, ContinueAsNew)
    assert [fact.guid for fact in birth.inherited] == [line[0].guid]


def test_clean_up_of_a_cancelled_run_receives_prefetched_signals() -> None:
    run, _ = begun(tidying)
    assert run_messages.take_messages(run, CANCEL, [said(word, "a")]) == 2
    changes = write(run)
    assert kinds(changes)[-3:] == [*HEARD, e.ExecutionCancelled]


@pytest.mark.parametrize(
    ("make_call", "line"),
    [
        (asking, [result(), said(word, "a")]),
        (asking, [result(), said(number, 1), said(word, "a")]),
        (asking, [result(), said(number, 1), LATE]),
        (patient, [result(), said(word, "a")]),
        (
            branching,
            [result("root.1.0"), said(word, "a"), result("root.2.0"), said(number, 1)],
        ),
        (
            branching,
            [result("root.1.0"), result("root.2.0"), said(number, 1), said(word, "a")],
        ),
        (lambda: chaining(0), [result(), said(word, "a"), said(number, 1)]),
        (tidying, [CANCEL, said(number, 1), said(word, "a")]),
    ],
)
def test_every_prefix_of_the_journal_replays(
    make_call: Callable[[], ProgramCall[Any]], line: list[Message]
) -> None:
    """Where parts commit apart a crash leaves any of them; no messages are prefetched then."""
    run, journal = begun(make_call)
    first, *behind = line
    assert run_messages.take_messages(run, first, behind)
    journal += events(write(run))
    run.machine.close()
    for end in range(1, len(journal) + 1):
        machine = new_machine(make_call(), journal[:end])
        machine.replay()
        if end == len(journal):
            assert machine.record.changes == []
        machine.close()


def test_a_delivery_that_the_program_does_not_await_is_a_divergence() -> None:
    run, journal = begun(asking)
    assert run_messages.take_messages(run, result(), [said(word, "a")]) == 2
    journal += events(write(run))
    machine = new_machine(not_asking(), journal)
    with pytest.raises(Diverged) as caught:
        machine.replay()
    machine.close()
    divergence = caught.value.divergence
    assert type(divergence.recorded) is e.SignalDelivered
    assert type(divergence.actual) is e.InvokeScheduled
    assert divergence.seq == 6


def test_queued_results_are_taken_in_one_turn() -> None:
    run, _ = begun(branching)
    assert run_messages.take_messages(run, result("root.1.0"), [result("root.2.0")]) == 2
    awaiting = [*RESUMED, e.ExecutionAwaiting]
    assert kinds(write(run)) == awaiting * 2


def test_a_refused_message_ends_the_turn_and_is_not_counted() -> None:
    run, _ = begun(branching)
    line = [LATE, result("root.2.0")]
    assert run_messages.take_messages(run, result("root.1.0"), line) == 1
    assert run_messages.take_messages(run, LATE, [result("root.2.0")]) == 0


def test_nothing_is_fed_to_a_run_that_is_over() -> None:
    run, _ = begun(asking)
    line = [said(word, "a"), said(word, "b", "2"), CANCEL]
    assert run_messages.take_messages(run, result(), line) == 2
