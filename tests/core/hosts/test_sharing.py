from itertools import cycle, islice

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.hosts.sharing import BATCH, FAIR_LOOKS, allowance, level, room_after

some = st.integers(0, 10_000)
few = st.lists(st.integers(0, 300), max_size=9)


def test_a_lone_host_takes_all_in_batches() -> None:
    assert allowance(1250, 0, (), 2000, looks=1) == BATCH
    assert allowance(250, 1000, (), 2000, looks=1) == 250


def test_many_hosts_take_small_batches_so_that_each_gets_some() -> None:
    assert allowance(10_000, 0, [0] * 9, 2000, looks=FAIR_LOOKS + 1) == BATCH // 10
    assert allowance(10_000, 0, [0] * 999, 2000, looks=FAIR_LOOKS + 1) == 1


def test_a_host_takes_its_share_of_new_orphans_and_the_rest_of_old_ones() -> None:
    assert allowance(90, 0, (0, 0), 1000, looks=1) == 30
    assert allowance(60, 30, (0, 0), 1000, looks=1) == 0
    assert allowance(60, 0, (30, 0), 1000, looks=FAIR_LOOKS) == 30
    assert allowance(60, 0, (30, 0), 1000, looks=FAIR_LOOKS + 1) == 60


def test_a_host_with_fewer_runs_takes_more() -> None:
    assert level(90, [1000, 0, 0]) == 45
    assert allowance(90, 0, (1000, 0), 1000, looks=1) == 45
    assert allowance(90, 1000, (0, 0), 1000, looks=1) == 0


def test_a_host_at_its_limit_takes_nothing() -> None:
    assert allowance(90, 0, (), 0, looks=1) == 0
    assert allowance(90, 0, (), 7, looks=FAIR_LOOKS + 1) == 7


@given(some, some, few, some, st.integers(1, 5))
def test_a_host_takes_at_most_what_is_left_what_it_has_room_for_and_a_batch(
    left: int, owned: int, others: list[int], room: int, looks: int
) -> None:
    assert 0 <= allowance(left, owned, others, room, looks=looks) <= min(left, room, BATCH)


@given(some, st.lists(st.integers(0, 300), min_size=1, max_size=9))
def test_the_level_takes_all_that_is_left_and_no_host_more_than_one_less(
    left: int, counts: list[int]
) -> None:
    reached = level(left, counts)
    assert sum(max(0, reached - each) for each in counts) >= left
    assert sum(max(0, reached - 1 - each) for each in counts) < max(left, 1)


@given(st.integers(1, 3000), st.integers(1, 9), st.randoms(use_true_random=False))
def test_hosts_that_take_in_any_order_end_up_with_even_shares(
    left: int, hosts: int, random: object
) -> None:
    """Each takes as many batches as its turn in a random order allows, until no host takes more."""
    owned, orphans = [0] * hosts, left
    order = list(range(hosts))
    random.shuffle(order)  # type: ignore[attr-defined]
    for host in islice(cycle(order), hosts * (left + 1)):
        others = owned[:host] + owned[host + 1 :]
        while count := allowance(orphans, owned[host], others, 10_000, looks=1):
            owned[host] += count
            orphans -= count
        if not orphans:
            break
    assert orphans == 0
    assert max(owned) - min(owned) <= hosts  # each rounds up


def test_runs_that_take_no_slot_leave_room_for_more() -> None:
    assert room_after(16, 16, 16) == 32
    assert room_after(16, 16, 3) == 3
    assert room_after(16, 16, 0) == 0
