"""Entries of several journals in one read."""

from perdure.core.ids import RunId
from perdure.store.rows.records import JournalPart
from perdure.store.store import Store
from tests.store.builders import begun, some_run_id


async def test_parts_of_several_journals_are_read_at_once(store: Store) -> None:
    one, two = await begun(store), await begun(store)
    await store.commit(two.step())
    whole = {run.run_id: await store.entries(run.run_id) for run in (one, two)}
    parts = [JournalPart(one.run_id, 1, 3), JournalPart(two.run_id, 2, 1000)]
    assert await store.grown(parts) == {
        one.run_id: whole[one.run_id][1:3],
        two.run_id: whole[two.run_id][2:],
    }


async def test_journals_without_entries_in_their_part_are_left_out(store: Store) -> None:
    run = await begun(store)
    parts = [JournalPart(run.run_id, run.journal.seq, 1000), JournalPart(some_run_id(), 0, 10)]
    assert await store.grown(parts) == {}
    assert await store.grown([]) == {}
    assert await store.grown([JournalPart(RunId("r_'; nonsense"), 0, 10)]) == {}
