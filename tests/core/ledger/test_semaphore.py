import pytest

from perdure.core.errors import LedgerDecrement, SemaphoreUnderflow
from perdure.core.ledger import Settlement, settle


@pytest.mark.parametrize(("spawned", "delta"), [(0, -1), (1, 0), (2, 1), (3, 2)])
def test_one_obligation_closes_and_each_child_opens_one(spawned: int, delta: int) -> None:
    assert settle(5, spawned).delta == delta


def test_two_children_raise_five_to_six() -> None:
    assert settle(5, 2) == Settlement(before=5, after=6, threshold=0, closed=False)


def test_the_last_obligation_closes_the_run() -> None:
    assert settle(1, 0) == Settlement(before=1, after=0, threshold=0, closed=True)


def test_one_of_two_obligations_does_not_close_the_run() -> None:
    assert not settle(2, 0).closed


@pytest.mark.parametrize(
    ("before", "spawned", "closed"),
    [(13, 0, True), (12, 0, False), (14, 0, False), (11, 2, True), (12, 1, True), (1, 0, False)],
)
def test_any_threshold_may_be_the_one_that_closes(before: int, spawned: int, closed: bool) -> None:
    assert settle(before, spawned, threshold=12).closed is closed


@pytest.mark.parametrize("before", [0, -1])
@pytest.mark.parametrize("spawned", [0, 1, 2])
def test_nothing_can_be_settled_when_nothing_is_open(before: int, spawned: int) -> None:
    with pytest.raises(SemaphoreUnderflow, match=f"semaphore {before}"):
        settle(before, spawned)


def test_a_negative_number_of_children_is_refused() -> None:
    with pytest.raises(LedgerDecrement, match="-1 children"):
        settle(5, -1)
