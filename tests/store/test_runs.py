import pytest

from perdure.core.errors import BundleRefused, RunExists, StaleFence, UnknownRun
from perdure.core.ids import HostId
from perdure.core.journal import events as e
from perdure.core.journal.entry import genesis
from perdure.core.journal.state import Status
from perdure.core.ledger import ATTEMPT, ENTRY, LEG1_DONE, AccountId, step_account
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from tests.store.builders import (
    HOST,
    NOW,
    OTHER_HOST,
    Driven,
    begun,
    contents,
    raw,
    sending,
    some_run_id,
    together,
)

pytestmark = pytest.mark.asyncio


async def test_a_new_store_is_empty(store: Store) -> None:
    assert await store.run(some_run_id()) is None
    assert await store.run_by_key("", "checkout", "order-42") is None
    assert await store.open_runs(None) == []
    assert [books async for books in store.books()] == []


async def test_a_created_run_reads_back(store: Store) -> None:
    run = Driven(key="order-42")
    await store.commit(run.start(scope="acme"))
    found = await store.run(run.run_id)
    assert found is not None
    assert found == await store.run_by_key("acme", "checkout", "order-42")
    assert (found.scope, found.program, found.version, found.digest) == (
        "acme",
        "checkout",
        "1",
        "d1",
    )
    assert (found.key, found.owner, found.epoch) == ("order-42", HOST, 1)
    assert (found.seq, found.head) == (run.journal.seq, run.journal.head)
    assert (found.semaphore, found.status) == (1, Status.RUNNING)
    assert (found.created_at_ms, found.closed_at_ms) == (NOW, None)


async def test_appended_entries_read_back_as_they_were_written(store: Store) -> None:
    run = await begun(store)
    written = run.append(e.InvokeCompleted(run.step_id, 1, payload=b"\0\xff"), e.ExecutionResumed())
    bundle = Bundle()
    bundle.append(run.fence, written)
    await store.commit(bundle)
    assert tuple(await store.entries(run.run_id, first=4)) == written.entries
    found = await store.run(run.run_id)
    assert found is not None
    assert (found.seq, found.status, found.semaphore) == (6, Status.RUNNING, 1)


async def test_a_journal_can_be_read_in_pieces(store: Store) -> None:
    run = await begun(store)
    await store.commit(run.step())
    whole = await store.entries(run.run_id)
    assert [entry.seq for entry in whole] == list(range(9))
    assert await store.entries(run.run_id, 2, 5) == whole[2:5]
    assert await store.entries(run.run_id, 7) == whole[7:]
    assert await store.entries(run.run_id, 9) == []
    assert whole[0].prev == genesis(run.run_id)


async def test_postings_are_summed_per_account(store: Store) -> None:
    run = await begun(store)
    first, second = step_account(run.step_id), AccountId("step:root.2")
    await store.commit(run.step())
    assert await store.balance(run.run_id, first) == ATTEMPT + LEG1_DONE + ENTRY
    assert await store.balances(run.run_id) == {
        first: ATTEMPT + LEG1_DONE + ENTRY,
        second: ATTEMPT + LEG1_DONE,
    }


async def test_an_unknown_account_reads_zero(store: Store) -> None:
    run = await begun(store)
    assert await store.balance(run.run_id, AccountId("step:nowhere")) == 0
    assert await store.balance(some_run_id(), AccountId("step:root.1")) == 0


async def test_a_finished_run_is_closed_and_not_open(store: Store) -> None:
    run = await begun(store)
    await store.commit(run.finish())
    found = await store.run(run.run_id)
    assert found is not None
    assert (found.status, found.semaphore) == (Status.COMPLETED, 0)
    assert found.closed_at_ms == NOW
    assert await store.open_runs(HOST) == []


async def test_a_closed_run_has_no_owner_so_that_any_host_may_handle_late_messages(
    store: Store,
) -> None:
    run = await begun(store)
    await store.commit(run.finish())
    found = await store.run(run.run_id)
    assert found is not None
    assert found.owner is None
    late = run.message("late")
    await store.commit(sending(late))
    assert await store.due_messages(OTHER_HOST, NOW, 10) == [late]
    assert await store.take_over(HOST, OTHER_HOST, 10) == []


async def test_erased_payloads_are_gone_and_the_chain_still_verifies(store: Store) -> None:
    run = await begun(store)
    before = await store.entries(run.run_id)
    assert await store.erase_payloads(run.run_id, 0, 4) == 2
    after = await store.entries(run.run_id)
    assert [entry.payload for entry in after] == [None] * 4
    assert [entry.hash for entry in after] == [entry.hash for entry in before]
    assert await store.erase_payloads(run.run_id, 0, 4) == 0
    await store.commit((await run.reload(store)).step())


async def test_only_the_named_payloads_are_erased(store: Store) -> None:
    run = await begun(store)
    assert await store.erase_payloads(run.run_id, 1, 4) == 1
    entries = await store.entries(run.run_id)
    assert [entry.payload for entry in entries] == [b"{}", None, None, None]


async def test_a_bundle_with_a_ledger_overflow_writes_nothing(store: Store) -> None:
    good, bad = await begun(store), await begun(store)
    before = await contents(store)
    overflowing = bad.append(e.Posted("note", ()))
    overflowing.postings[AccountId("step:root.1")] = 999_999_999_999_999
    bundle = sending(good.message("beside"))
    bundle.append(bad.fence, overflowing)
    with pytest.raises(BundleRefused) as refused:
        await store.commit(bundle)
    assert refused.value.code == "bundle-refused"
    assert await contents(store) == before
    assert bad.fence.broken


async def test_a_bundle_with_a_negative_balance_writes_nothing(store: Store) -> None:
    run = await begun(store)
    before = await contents(store)
    wrong = run.append(e.Posted("note", ()))
    wrong.postings[AccountId("step:root.7")] = -1
    bundle = sending(run.message("beside"))
    bundle.append(run.fence, wrong)
    with pytest.raises(BundleRefused):
        await store.commit(bundle)
    assert await contents(store) == before


async def test_an_entry_that_exists_already_rejects_its_whole_bundle(
    store: Store, tampering: None
) -> None:
    run = await begun(store)
    await raw(
        store,
        "INSERT INTO {}event (run_id, seq, at_ms, body, prev)"
        f" VALUES ('{run.run_id}', 4, 0, 'x', '')"
        if "postgres" in store.name
        else "INSERT INTO {}event (run_id, seq, at_ms, body, prev)"
        f" VALUES ('{run.run_id}', 4, 0, 'x', x'')",
    )
    before = await contents(store)
    with pytest.raises(BundleRefused):
        await store.commit(together(sending(run.message("beside")), run.step()))
    assert await contents(store) == before


async def test_a_key_that_is_taken_is_refused_with_its_holder(store: Store) -> None:
    holder, late = Driven(key="order-42"), Driven(key="order-42")
    await store.commit(holder.start())
    before = await contents(store)
    with pytest.raises(RunExists) as taken:
        await store.commit(together(late.start(), sending(late.message("beside"))))
    assert taken.value.run_id == holder.run_id
    assert taken.value.code == "run-exists"
    assert "order-42" in taken.value.what
    assert await contents(store) == before
    assert late.fence.broken


async def test_a_run_id_that_exists_is_refused(store: Store) -> None:
    run = await begun(store)
    twin = Driven(run_id=run.run_id)
    with pytest.raises(RunExists) as taken:
        await store.commit(twin.start())
    assert taken.value.run_id == run.run_id
    await store.commit(run.step())


@pytest.mark.parametrize(
    ("scope", "program"), [("other", "checkout"), ("", "refund")], ids=["scope", "program"]
)
async def test_a_key_is_free_in_another_scope_or_program(
    store: Store, scope: str, program: str
) -> None:
    await store.commit(Driven(key="order-42").start())
    other = Driven(key="order-42")
    await store.commit(other.start(scope=scope, program=program))
    found = await store.run_by_key(scope, program, "order-42")
    assert found is not None
    assert found.run_id == other.run_id


async def test_runs_without_a_key_never_collide(store: Store) -> None:
    for _ in range(3):
        await store.commit(Driven().start())
    assert len(await store.open_runs(HOST)) == 3


async def test_appending_to_an_unknown_run_is_refused(store: Store) -> None:
    run = Driven()
    run.start()
    with pytest.raises(UnknownRun) as unknown:
        await store.commit(run.first_step())
    assert run.run_id in unknown.value.what


async def test_open_runs_come_in_pages_in_the_order_of_ids(store: Store) -> None:
    ids = sorted([(await begun(store)).run_id for _ in range(5)])
    await begun(store, owner=OTHER_HOST)
    nobodys = await begun(store, owner=None)
    first = await store.open_runs(HOST, limit=2)
    second = await store.open_runs(HOST, after=first[-1].run_id, limit=2)
    third = await store.open_runs(HOST, after=second[-1].run_id, limit=2)
    assert [run.run_id for run in (*first, *second, *third)] == ids
    assert await store.open_runs(HOST, after=third[-1].run_id) == []
    assert [run.run_id for run in await store.open_runs(None)] == [nobodys.run_id]


async def test_ids_of_open_runs_of_all_owners_come_in_pages(store: Store) -> None:
    runs = [await begun(store, owner=owner) for owner in (HOST, OTHER_HOST, None, HOST)]
    over = await begun(store)
    await store.commit(over.finish())
    ids = sorted(run.run_id for run in runs)
    first = await store.open_ids(None, 3)
    assert [*first, *await store.open_ids(first[-1], 3)] == ids
    assert await store.open_ids(ids[-1], 3) == []


async def test_the_ids_of_open_runs_of_some_programs(store: Store) -> None:
    await begun(store)
    other = Driven()
    await store.commit(other.start(program="refund"))
    assert await store.open_ids(None, 9, ["refund", "nothing"]) == [other.run_id]
    assert len(await store.open_ids(None, 9, ["refund", "checkout"])) == 2
    assert await store.open_ids(None, 9, []) == []


async def test_claimed_runs_have_an_owner_and_a_new_epoch(store: Store) -> None:
    runs = [await begun(store, owner=None) for _ in range(3)]
    claimed = await store.claim_runs(HOST, 2)
    assert [run.run_id for run in claimed] == sorted(run.run_id for run in runs)[:2]
    assert {(run.owner, run.epoch) for run in claimed} == {(HOST, 2)}
    assert claimed == await store.open_runs(HOST)
    assert len(await store.claim_runs(OTHER_HOST, 10)) == 1
    assert await store.claim_runs(OTHER_HOST, 10) == []


async def test_a_closed_run_is_not_claimed(store: Store) -> None:
    run = await begun(store, owner=None)
    await store.commit(run.finish())
    assert await store.claim_runs(HOST, 10) == []


async def test_a_takeover_bumps_epochs_and_fences_the_old_owner_out(store: Store) -> None:
    runs = [await begun(store) for _ in range(3)]
    mine = await begun(store, owner=OTHER_HOST)
    taken = await store.take_over(HOST, OTHER_HOST, 10)
    assert [run.run_id for run in taken] == sorted(run.run_id for run in runs)
    assert {(run.owner, run.epoch) for run in taken} == {(OTHER_HOST, 2)}
    for run in runs:
        with pytest.raises(StaleFence):
            await store.commit(run.step())
        await store.commit((await run.reload(store)).step())
    await store.commit(mine.step())


async def test_a_takeover_takes_no_more_runs_than_its_limit(store: Store) -> None:
    for _ in range(3):
        await begun(store)
    assert len(await store.take_over(HOST, OTHER_HOST, 2)) == 2
    assert len(await store.take_over(HOST, OTHER_HOST, 2)) == 1
    assert await store.take_over(HOST, OTHER_HOST, 2) == []


async def test_one_run_is_taken_by_its_id_and_its_old_owner_is_fenced_out(store: Store) -> None:
    run, other, unowned = await begun(store), await begun(store), await begun(store, owner=None)
    taken = await store.take_run(run.run_id, HOST, OTHER_HOST)
    assert taken is not None
    assert (taken.run_id, taken.owner, taken.epoch) == (run.run_id, OTHER_HOST, 2)
    assert taken == await store.run(run.run_id)
    with pytest.raises(StaleFence):
        await store.commit(run.step())
    await store.commit(other.step())
    claimed = await store.take_run(unowned.run_id, None, OTHER_HOST)
    assert claimed is not None
    assert (claimed.owner, claimed.epoch) == (OTHER_HOST, unowned.fence.epoch + 1)


async def test_a_run_of_another_owner_or_a_closed_one_is_not_taken_by_its_id(store: Store) -> None:
    run, over = await begun(store), await begun(store)
    await store.commit(over.finish())
    for run_id, owner in ((run.run_id, OTHER_HOST), (run.run_id, None), (over.run_id, None)):
        assert await store.take_run(run_id, owner, HostId("host-c")) is None
    await store.commit(run.step())


async def test_a_released_run_can_be_claimed_and_its_old_owner_is_fenced_out(store: Store) -> None:
    run = await begun(store)
    assert await store.release_run(run.fence)
    with pytest.raises(StaleFence):
        await store.commit(run.step())
    (claimed,) = await store.claim_runs(HostId("host-c"), 10)
    assert (claimed.run_id, claimed.epoch) == (run.run_id, 3)


async def test_a_run_that_was_taken_over_can_not_be_released(store: Store) -> None:
    run = await begun(store)
    await store.take_over(HOST, OTHER_HOST, 10)
    assert not await store.release_run(run.fence)
    found = await store.run(run.run_id)
    assert found is not None
    assert found.owner == OTHER_HOST


async def test_a_bundle_of_messages_needs_no_fence(store: Store) -> None:
    run = await begun(store)
    await store.commit(sending(run.message("a"), run.message("b")))
    assert len(await store.messages(run.run_id)) == 2


async def test_an_empty_bundle_commits(store: Store) -> None:
    await store.commit(Bundle())


async def test_one_bundle_may_write_several_runs(store: Store) -> None:
    first, second = Driven(), Driven()
    await store.commit(together(first.start(), second.start(), second.first_step()))
    await store.commit(together(first.first_step(), second.step()))
    assert (first.journal.seq, second.journal.seq) == (4, 9)


async def test_books_name_rows_whose_run_is_gone(store: Store, tampering: None) -> None:
    run = await begun(store)
    await raw(store, "DELETE FROM {}run")
    (books,) = [books async for books in store.books()]
    assert (books.run_id, books.ending, len(books.entries)) == (run.run_id, None, 4)


async def test_books_end_with_the_runs_that_existed_at_their_start(
    store: Store,
) -> None:
    first = await begun(store)
    read = []
    async for books in store.books():
        read.append(books.run_id)
        await begun(store)
    assert read == [first.run_id]


@pytest.mark.usefixtures("tampering")
async def test_run_without_a_row_hides_no_other_run_of_the_same_read(store: Store) -> None:
    kept, gone = [await begun(store) for _ in range(2)]
    await raw(store, f"DELETE FROM {{}}run WHERE id = '{gone.run_id}'")
    both = [gone.run_id, kept.run_id]
    assert [run.run_id for run, _ in await store.load(both)] == [kept.run_id]
    assert [stored.run.run_id for stored in await store.load_all(both)] == [kept.run_id]
