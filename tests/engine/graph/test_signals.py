"""Signals of a graph run: kept, waited for, given up, forgotten."""

from perdure.core.ids import Guid, StepId
from perdure.core.journal.events import SignalDelivered
from perdure.engine.graph.signals import Waiting

STEP = StepId("h,0,0")


def signal(number: int) -> SignalDelivered:
    return SignalDelivered("go", number, Guid(f"m_{number}"), staged=True)


def test_the_oldest_is_taken_first_and_each_once() -> None:
    waiting = Waiting()
    assert [waiting.deliver(signal(number)) for number in (1, 2)] == [None, None]
    waiting.expect(STEP, ("go",))
    assert waiting.has_unread(Guid("m_1"))
    assert [waiting.take(STEP) for _ in range(3)] == [signal(1), signal(2), None]
    assert not waiting.has_unread(Guid("m_1"))
    assert waiting.next_delivery("go") == 3


def test_who_waits_is_told_and_who_gave_up_is_not() -> None:
    waiting = Waiting()
    waiting.expect(STEP, ("go", "come"))
    assert waiting.deliver(signal(1)) == STEP
    waiting.give_up(STEP)
    assert STEP not in waiting
    assert waiting.deliver(signal(2)) is None
    assert waiting.take(STEP) is None


def test_nothing_is_left_of_what_nobody_will_ask_for() -> None:
    waiting = Waiting()
    waiting.deliver(signal(1))
    waiting.forget("go")
    waiting.forget("never came")
    assert not waiting.has_unread(Guid("m_1"))
    waiting.expect(STEP, ("go",))
    assert waiting.take(STEP) is None
    assert waiting.next_delivery("go") == 2
