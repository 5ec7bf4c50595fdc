from hypothesis import given
from hypothesis import strategies as st

from perdure.core.hosts.sharing import BATCH, allowance

some = st.integers(0, 10_000)


def test_a_lone_host_takes_all_in_batches() -> None:
    assert allowance(250, 1, 0, 1000, is_new=True) == BATCH
    assert allowance(50, 1, 200, 1000, is_new=True) == 50


def test_of_a_new_pile_a_host_takes_its_share_and_of_an_old_one_the_rest() -> None:
    assert allowance(90, 3, 0, 1000, is_new=True) == 30
    assert allowance(60, 3, 30, 1000, is_new=True) == 0
    assert allowance(60, 3, 0, 1000, is_new=False) == 60


def test_a_host_at_its_limit_takes_nothing() -> None:
    assert allowance(90, 1, 0, 0, is_new=True) == 0
    assert allowance(90, 1, 0, 7, is_new=False) == 7


@given(some, st.integers(1, 50), some, some, st.booleans())
def test_no_more_than_there_are_than_there_is_room_for_and_than_a_batch(
    left: int, hosts: int, taken: int, room: int, is_new: bool
) -> None:
    assert 0 <= allowance(left, hosts, taken, room, is_new=is_new) <= min(left, room, BATCH)


@given(st.integers(1, 10_000), st.integers(1, 50))
def test_all_hosts_together_leave_nothing_behind(left: int, hosts: int) -> None:
    """Each at its first look, one after the other, and then whoever looks again."""
    for is_new in (True, False):
        for _ in range(hosts):
            taken = 0
            while count := allowance(left, hosts, taken, 10_000, is_new=is_new):
                taken, left = taken + count, left - count
    assert left == 0
