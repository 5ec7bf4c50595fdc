"""Which runs leave memory, in what order, and that their bytes are counted exactly."""

from random import Random
from typing import cast

import pytest

from perdure.core.ids import RunId
from perdure.engine.runs.warm import WarmRun
from perdure.host.runs import cache as cache_module
from perdure.host.runs.cache import RunCache
from perdure.host.runs.memory import MemoryUse

HUNDRED = 100


class Run:
    """A run as the cache sees it. Also its machine."""

    def __init__(self, name: str, size: int = HUNDRED) -> None:
        self.run_id = RunId(name)
        self.size = size
        self.counted_bytes = 0
        self.is_pinned = False
        self.is_closed = False
        self.machine = self

    def estimated_bytes(self) -> int:
        return self.size

    def close(self) -> None:
        self.is_closed = True


class Cache(RunCache):
    """A cache of such runs. Those named in `continuing` are about to continue."""

    def __init__(self, budget: int) -> None:
        super().__init__(MemoryUse(budget, lambda: 0), self.answer)
        self.continuing: set[str] = set()
        self.asked = 0

    def answer(self, run: WarmRun) -> bool:
        self.asked += 1
        return run.run_id in self.continuing

    def put(self, *names: str, size: int = HUNDRED) -> dict[str, Run]:
        runs = {name: Run(name, size) for name in names}
        for run in runs.values():
            self.add(cast("WarmRun", run))
        return runs

    @property
    def names(self) -> str:
        return "".join(sorted(run.run_id for run in self))


def test_least_recently_used_runs_leave_first() -> None:
    cache = Cache(3 * HUNDRED)
    runs = cache.put(*"abcde")
    cache.get(RunId("a"))
    cache.trim()
    assert cache.names == "ade"
    assert [name for name, run in runs.items() if run.is_closed] == ["b", "c"]
    assert (cache.use.evictions, cache.use.early_evictions) == (2, 0)


def test_nothing_leaves_within_the_budget() -> None:
    cache = Cache(3 * HUNDRED)
    cache.put(*"abc")
    cache.trim()
    assert (cache.names, cache.asked) == ("abc", 0)


def test_runs_about_to_continue_leave_last() -> None:
    cache = Cache(2 * HUNDRED)
    cache.put(*"abcde")
    cache.continuing = {"a", "b"}
    cache.trim()
    assert cache.names == "ab"
    assert cache.use.early_evictions == 0
    cache.put("f")
    cache.trim()
    assert cache.names == "ab"
    cache.continuing = {"a", "b", "g"}
    cache.put("g")
    cache.trim()
    assert cache.names == "ab"
    assert cache.use.early_evictions == 1


def test_run_that_was_set_aside_and_used_may_leave_as_an_idle_one() -> None:
    cache = Cache(2 * HUNDRED)
    cache.put(*"abc")
    cache.continuing = {"a"}
    cache.trim()
    assert cache.names == "ac"
    cache.continuing = set()
    cache.get(RunId("a"))
    cache.put("d")
    cache.trim()
    assert cache.names == "ad"
    assert cache.use.early_evictions == 0


def test_runs_that_continue_in_turn_are_not_all_replayed() -> None:
    names = [f"r{number}" for number in range(100)]
    cache = Cache(80 * HUNDRED)
    cache.continuing = {*names}
    for _ in range(10):
        for name in names:
            if cache.get(RunId(name)) is None:
                cache.use.replayed()
                cache.put(name)
            cache.trim()
    assert len(cache) == 80
    # Without room for a fifth of them the best order replays a fifth, and the least recently used one all.
    assert cache.use.replays < 10 * len(names) / 2


def test_run_that_waits_for_long_leaves_before_all_others_were_replayed() -> None:
    names = [f"r{number}" for number in range(10)]
    cache = Cache(8 * HUNDRED)
    cache.put("waiting")
    cache.continuing = {*names, "waiting"}
    for name in names:
        cache.put(name)
        cache.trim()
    assert "waiting" not in cache


def test_pinned_runs_and_runs_that_a_caller_loads_stay() -> None:
    cache = Cache(HUNDRED)
    runs = cache.put(*"abcd")
    runs["a"].is_pinned = True
    cache.begin_load(RunId("b"))
    cache.trim()
    assert cache.names == "ab"
    runs["a"].is_pinned = False
    cache.end_load(RunId("b"))
    cache.weigh(cast("WarmRun", runs["a"]))
    cache.trim()
    assert len(cache) == 1


def test_search_continues_behind_many_pinned_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MOST_PINNED", 2)
    cache = Cache(4 * HUNDRED)
    runs = cache.put(*"abcde")
    for name in "abde":
        runs[name].is_pinned = True
    cache.continuing = {"c"}
    cache.trim()
    assert cache.names == "abcde"
    cache.trim()
    assert cache.names == "abde"


def test_one_run_about_to_continue_stays_however_large() -> None:
    cache = Cache(HUNDRED)
    cache.put("a", size=1000)
    cache.continuing = {"a"}
    cache.trim()
    assert cache.names == "a"
    cache.continuing = set()
    cache.get(RunId("a"))
    cache.trim()
    assert cache.names == ""


def test_budget_of_nothing_keeps_no_run() -> None:
    cache = Cache(0)
    cache.put(*"ab")
    cache.continuing = {"a", "b"}
    cache.trim()
    assert cache.names == ""


def test_each_use_of_a_run_costs_at_most_one_look_at_it() -> None:
    cache = Cache(1000 * HUNDRED)
    names = [f"r{number}" for number in range(1000)]
    cache.continuing = {*names}
    cache.put(*names)
    for number in range(1000):
        cache.put(f"idle{number}")
        cache.trim()
    assert len(cache) == 1000
    assert cache.asked <= 2000
    assert cache.use.early_evictions == 0


def test_grown_run_counts_with_its_new_size() -> None:
    cache = Cache(10 * HUNDRED)
    run = cache.put("a")["a"]
    run.size = 5 * HUNDRED
    cache.weigh(cast("WarmRun", run))
    assert cache.use.used_bytes == 5 * HUNDRED
    cache.remove(cast("WarmRun", run))
    cache.weigh(cast("WarmRun", run))
    assert cache.use.used_bytes == 0


def test_run_that_replaces_another_under_its_id_counts_alone() -> None:
    cache = Cache(10 * HUNDRED)
    (former,) = cache.put("a").values()
    cache.put("a", size=2 * HUNDRED)
    assert (len(cache), cache.use.used_bytes, former.counted_bytes) == (1, 2 * HUNDRED, 0)


def test_used_bytes_are_those_of_the_runs_in_memory() -> None:
    random = Random(7)
    cache = Cache(20 * HUNDRED)
    runs: dict[str, Run] = {}
    for number in range(3000):
        name = f"r{random.randrange(60)}"
        run = runs.get(name)
        if run is None or name not in cache:
            runs |= cache.put(name, size=random.randrange(3 * HUNDRED))
        else:
            run.size = random.randrange(3 * HUNDRED)
            run.is_pinned = random.random() < 0.1
            warm = cast("WarmRun", run)
            random.choice([cache.weigh, cache.weigh, cache.remove, cache.evict])(warm)
        if number % 100 == 0:
            cache.continuing = {*random.sample(sorted(runs), len(runs) // 2)}
        cache.trim()
        assert cache.use.used_bytes == sum(each.counted_bytes for each in cache) >= 0
        pinned = sum(each.counted_bytes for each in cache if each.is_pinned)
        largest = max((each.counted_bytes for each in cache), default=0)
        assert cache.use.used_bytes <= cache.use.budget_bytes + pinned + largest
    for warm in cache:
        cache.evict(warm)
    assert (cache.use.used_bytes, len(cache)) == (0, 0)
