"""Signals of a graph run: kept, waited for, given up, forgotten."""

from perdure.core.ids import Guid, StepId
from perdure.core.journal.events import SignalDelivered
from perdure.engine.graph.signals import GraphSignals

STEP = StepId("h,0,0")


def signal(number: int) -> SignalDelivered:
    return SignalDelivered("go", number, Guid(f"m_{number}"), staged=True)


def test_oldest_signal_is_received_first_and_each_once() -> None:
    waiting = GraphSignals()
    assert [waiting.deliver(signal(number)) for number in (1, 2)] == [None, None]
    waiting.expect(STEP, ("go",))
    assert waiting.has_unread(Guid("m_1"))
    assert [waiting.take(STEP) for _ in range(3)] == [signal(1), signal(2), None]
    assert not waiting.has_unread(Guid("m_1"))
    assert waiting.next_delivery("go") == 3


def test_signal_reaches_a_waiting_step_and_not_one_that_gave_up() -> None:
    waiting = GraphSignals()
    waiting.expect(STEP, ("go", "come"))
    assert waiting.deliver(signal(1)) == STEP
    waiting.give_up(STEP)
    assert STEP not in waiting
    assert waiting.deliver(signal(2)) is None
    assert waiting.take(STEP) is None


def test_forgotten_signals_are_dropped() -> None:
    waiting = GraphSignals()
    waiting.deliver(signal(1))
    waiting.forget("go")
    waiting.forget("never came")
    assert not waiting.has_unread(Guid("m_1"))
    waiting.expect(STEP, ("go",))
    assert waiting.take(STEP) is None
    assert waiting.next_delivery("go") == 2
