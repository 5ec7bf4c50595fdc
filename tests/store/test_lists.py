"""Lists of runs: every filter, page by page, against the meaning of the filter."""

import pytest

from perdure.core.ids import RunId
from perdure.core.runs.listing import RunFilter
from perdure.store import list_queries
from perdure.store.store import Store
from tests.store.builders import raw
from tests.store.listed_runs import (
    each_filter,
    empty,
    expected,
    insert,
    literal,
    skipping_at_edges,
    some_runs,
)

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.usefixtures("tampering"),
    pytest.mark.parametrize(
        "store_url",
        ["memory", pytest.param("postgres", marks=pytest.mark.postgres)],
        indirect=True,
    ),
]

RUNS = some_runs(80)


async def pages(store: Store, wanted: RunFilter, limit: int) -> list[RunId]:
    """All pages of a list, one after the other."""
    found: list[RunId] = []
    after = None
    for _ in range(10 * len(RUNS)):
        page = await store.list_runs(wanted, after, limit)
        assert len(page.runs) <= limit
        found += [run.run_id for run in page.runs]
        after = page.after
        if after is None:
            return found
    raise AssertionError("the list does not end")


async def test_the_pages_of_every_filter_make_the_whole_list(store: Store) -> None:
    await insert(store, RUNS)
    for name, wanted in each_filter(RUNS).items():
        whole = expected(RUNS, wanted)
        assert whole or name == "nothing", name
        for limit in (1, 3, 100):
            assert await pages(store, wanted, limit) == whole, name


async def test_a_page_examines_a_limited_number_of_runs_and_the_next_one_continues(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, RUNS)
    monkeypatch.setattr(list_queries, "MAX_EXAMINED", 5)
    for name, wanted in each_filter(RUNS).items():
        assert await pages(store, wanted, 4) == expected(RUNS, wanted), name
    rare = RunFilter(version="2", parked=False)
    page = await store.list_runs(rare, None, 5)
    assert len(page.runs) < 5
    assert page.after is not None


async def test_pages_are_whole_if_there_are_more_owners_places_and_keys_than_they_merge(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, RUNS)
    monkeypatch.setattr(list_queries, "MAX_STREAMS", 1)
    monkeypatch.setattr(list_queries, "MAX_HELD_KEYS", 1)
    for name, wanted in each_filter(RUNS).items():
        assert await pages(store, wanted, 4) == expected(RUNS, wanted), name


async def test_seeded_bug_a_list_that_skips_a_run_at_the_edge_of_a_page_is_caught(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, RUNS)
    monkeypatch.setattr(list_queries, "next_position", skipping_at_edges)
    assert await pages(store, RunFilter(), 3) != expected(RUNS, RunFilter())


async def test_a_page_shows_what_the_rows_have(store: Store) -> None:
    await insert(store, RUNS)
    page = await store.list_runs(RunFilter(), None, 100)
    assert page.runs == sorted(RUNS, key=lambda run: run.run_id, reverse=True)


async def test_counts_stop_at_the_number_of_runs_that_they_examine(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, RUNS)
    for name, wanted in each_filter(RUNS).items():
        found = await store.count_runs(wanted)
        assert (found.runs, found.is_complete) == (len(expected(RUNS, wanted)), True), name
    monkeypatch.setattr(list_queries, "MAX_EXAMINED", 10)
    found = await store.count_runs(RunFilter())
    assert (found.runs, found.is_complete) == (10, False)


async def test_an_empty_store_has_empty_lists(store: Store) -> None:
    for wanted in each_filter(RUNS).values():
        assert await pages(store, wanted, 3) == []
        assert (await store.count_runs(wanted)).runs == 0


async def test_a_run_whose_key_was_handed_over_is_not_found_by_it(store: Store) -> None:
    (first, second) = [run for run in RUNS if run.key][:2]
    await insert(store, [first, second])
    await raw(
        store,
        "UPDATE {}run SET replaced_by = "
        f"{literal(second.run_id)}, head = {empty(store)} WHERE id = {literal(first.run_id)}",
    )
    wanted = RunFilter(key_prefix="order-")
    assert await pages(store, wanted, 10) == [second.run_id]
