from perdure.core.hosts.watch import HostWatch, Peer, is_fresh
from perdure.core.ids import HostId

LIMIT_MS = 10_000
QUIET, BUSY, ORPHAN = HostId("quiet"), HostId("busy"), HostId("orphan")


def looked(*looks: tuple[int, int]) -> HostWatch:
    """A watch that saw one host's beat at these times."""
    watch = HostWatch(LIMIT_MS)
    for now_ms, beat in looks:
        watch.look([Peer(QUIET, beat, LIMIT_MS)], [], now_ms)
    return watch


def every_second(end_ms: int, beat: int = 1) -> list[tuple[int, int]]:
    return [(now_ms, beat) for now_ms in range(0, end_ms + 1, 1000)]


def test_a_host_is_dead_when_its_beat_is_unchanged_for_longer_than_its_row_allows() -> None:
    assert not looked(*every_second(10_000)).is_gone(QUIET)
    assert looked(*every_second(11_000)).is_gone(QUIET)


def test_a_host_whose_beat_changes_is_alive() -> None:
    watch = looked(*every_second(9_000), (10_000, 2), (11_000, 2))
    assert not watch.is_gone(QUIET)
    assert watch.silent_ms(QUIET) == 1_000


def test_each_host_is_judged_by_its_own_threshold() -> None:
    watch = HostWatch(LIMIT_MS)
    for now_ms in range(0, 12_000, 1000):
        watch.look([Peer(QUIET, 1, 60_000), Peer(BUSY, 1, 5_000)], [], now_ms)
    assert not watch.is_gone(QUIET)
    assert watch.is_gone(BUSY)


def test_an_owner_without_a_row_is_dead_after_the_observers_threshold() -> None:
    watch = HostWatch(LIMIT_MS)
    for now_ms in range(0, 11_000, 1000):
        watch.look([Peer(BUSY, now_ms, LIMIT_MS)], [ORPHAN, BUSY], now_ms)
    assert not watch.is_gone(ORPHAN)
    watch.look([Peer(BUSY, 1, LIMIT_MS)], [ORPHAN, BUSY], 10_001)
    assert watch.is_gone(ORPHAN)
    assert not watch.is_gone(BUSY)


def test_a_host_whose_row_vanished_gets_a_new_threshold() -> None:
    watch = looked(*every_second(9_000))
    watch.look([], [QUIET], 10_000)
    watch.look([], [QUIET], 11_000)
    assert not watch.is_gone(QUIET)


def test_an_observer_that_did_not_look_for_long_declares_no_host_dead() -> None:
    watch = looked(*every_second(4_000), (60_000, 1))
    assert not watch.is_gone(QUIET)
    watch.look([Peer(QUIET, 1, LIMIT_MS)], [], 65_000)
    watch.look([Peer(QUIET, 1, LIMIT_MS)], [], 70_000)
    watch.look([Peer(QUIET, 1, LIMIT_MS)], [], 70_001)
    assert watch.is_gone(QUIET)


def test_a_heartbeat_is_fresh_for_half_the_threshold() -> None:
    assert is_fresh(1_000, 6_000, LIMIT_MS)
    assert not is_fresh(1_000, 6_001, LIMIT_MS)


def test_a_watch_sees_only_hosts_of_the_last_snapshot() -> None:
    watch = HostWatch(LIMIT_MS)
    watch.look([Peer(QUIET, 1, LIMIT_MS)], [ORPHAN], 0)
    assert watch.sees(QUIET)
    assert watch.sees(ORPHAN)
    watch.look([Peer(BUSY, 1, LIMIT_MS)], [], 1000)
    assert [watch.sees(host) for host in (QUIET, BUSY, ORPHAN)] == [False, True, False]
