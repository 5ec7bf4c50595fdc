from hypothesis import given
from hypothesis import strategies as st

from perdure.core.hosts.sharing import BATCH, FAIR_LOOKS, allowance, room_after

some = st.integers(0, 10_000)


def test_a_lone_host_takes_all_in_batches() -> None:
    assert allowance(1250, 1, 0, 2000, looks=1) == BATCH
    assert allowance(250, 1, 1000, 2000, looks=1) == 250


def test_many_hosts_take_small_batches_so_that_each_gets_some() -> None:
    assert allowance(10_000, 10, 0, 2000, looks=FAIR_LOOKS + 1) == BATCH // 10
    assert allowance(10_000, 1000, 0, 2000, looks=FAIR_LOOKS + 1) == 1


def test_a_host_takes_its_share_of_new_orphans_and_the_rest_of_old_ones() -> None:
    assert allowance(90, 3, 0, 1000, looks=1) == 30
    assert allowance(60, 3, 30, 1000, looks=1) == 0
    assert allowance(60, 3, 0, 1000, looks=FAIR_LOOKS) == 20
    assert allowance(60, 3, 0, 1000, looks=FAIR_LOOKS + 1) == 60


def test_a_host_at_its_limit_takes_nothing() -> None:
    assert allowance(90, 1, 0, 0, looks=1) == 0
    assert allowance(90, 1, 0, 7, looks=FAIR_LOOKS + 1) == 7


@given(some, st.integers(1, 50), some, some, st.integers(1, 5))
def test_a_host_takes_at_most_what_is_left_what_it_has_room_for_and_a_batch(
    left: int, hosts: int, taken: int, room: int, looks: int
) -> None:
    assert 0 <= allowance(left, hosts, taken, room, looks=looks) <= min(left, room, BATCH)


@given(st.integers(1, 10_000), st.integers(1, 50))
def test_all_hosts_together_take_every_run(left: int, hosts: int) -> None:
    """All hosts at their first look, one after the other; then hosts that look again."""
    for looks in (1, FAIR_LOOKS + 1):
        for _ in range(hosts):
            taken = 0
            while count := allowance(left, hosts, taken, 10_000, looks=looks):
                taken, left = taken + count, left - count
    assert left == 0


def test_runs_that_take_no_slot_leave_room_for_more() -> None:
    assert room_after(16, 16, 16) == 32
    assert room_after(16, 16, 3) == 3
    assert room_after(16, 16, 0) == 0
