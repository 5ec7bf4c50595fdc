"""`audit` and `verify` find every change that was made behind the store's back."""

from pathlib import Path

import pytest

from perdure.core.books import AuditFinding
from perdure.core.ids import RunId
from perdure.store.inspection import audit_runs, audit_store, verify_runs, verify_store
from perdure.store.opening import open_store
from perdure.store.store import Store
from tests.store.builders import NOW, Driven, begun, raw, some_run_id

pytestmark = pytest.mark.usefixtures("tampering")


async def three_runs(store: Store) -> Driven:
    """Three runs of about ten entries; the tests damage the one in the middle."""
    runs = [await begun(store) for _ in range(3)]
    for run in runs:
        await store.commit(run.step())
        await store.commit(run.finish())
    return sorted(runs, key=lambda run: run.run_id)[1]


def places(findings: list[AuditFinding]) -> set[tuple[str, RunId, int]]:
    return {(finding.name, finding.run_id, finding.seq) for finding in findings}


async def test_untouched_books_are_clean_and_counted(store: Store) -> None:
    await three_runs(store)
    for report in (await audit_store(store), await verify_store(store)):
        assert report.is_clean
        assert (report.runs, report.entries, report.accounts) == (3, 36, 6)
        assert str(report) == f"{store.name}: clean (runs 3, entries 36, accounts 6)"


async def test_one_flipped_digit_is_named_with_the_entry_that_last_posted_there(
    store: Store,
) -> None:
    run = await three_runs(store)
    await raw(
        store,
        "UPDATE {}ledger SET balance = balance + 100000000000000 WHERE account = 'step:root.1'"
        f" AND run_id = '{run.run_id}'",
    )
    report = await audit_store(store)
    assert places(report.findings) == {("balance_differs", run.run_id, 4)}
    assert "step:root.1 holds 101100000000001, its postings sum to 001100000000001" in str(report)
    assert (await verify_store(store)).is_clean


async def test_a_dropped_account_is_named(store: Store) -> None:
    run = await three_runs(store)
    await raw(
        store,
        f"DELETE FROM {{}}ledger WHERE account = 'step:root.2' AND run_id = '{run.run_id}'",
    )
    assert places((await audit_store(store)).findings) == {("balance_differs", run.run_id, 9)}


async def test_a_wrong_semaphore_is_named(store: Store) -> None:
    run = await three_runs(store)
    await raw(store, f"UPDATE {{}}run SET semaphore = 7 WHERE id = '{run.run_id}'")
    assert places((await audit_store(store)).findings) == {("semaphore_differs", run.run_id, 11)}


async def test_a_wrong_status_is_named(store: Store) -> None:
    run = await three_runs(store)
    await raw(store, f"UPDATE {{}}run SET status = 'failed' WHERE id = '{run.run_id}'")
    assert places((await audit_store(store)).findings) == {("status_differs", run.run_id, 11)}


@pytest.mark.parametrize("seq", [0, 5, 11])
async def test_a_dropped_entry_is_named_by_audit_and_verify(store: Store, seq: int) -> None:
    run = await three_runs(store)
    await raw(store, f"DELETE FROM {{}}event WHERE run_id = '{run.run_id}' AND seq = {seq}")
    assert places((await verify_store(store)).findings) == {("entry_missing", run.run_id, seq)}
    assert ("entry_missing", run.run_id, seq) in places((await audit_store(store)).findings)


@pytest.mark.parametrize("seq", [0, 5, 11])
@pytest.mark.parametrize(
    "change",
    [
        "at_ms = at_ms + 1",
        "body = replace(body, 'type', 'tyqe')",
        "prev = {zeros}",
    ],
)
async def test_a_changed_entry_is_named(store: Store, seq: int, change: str) -> None:
    run = await three_runs(store)
    change = change.replace("{zeros}", "substr(prev, 2)")
    await raw(store, f"UPDATE {{}}event SET {change} WHERE run_id = '{run.run_id}' AND seq = {seq}")
    assert places((await verify_store(store)).findings) == {("entry_altered", run.run_id, seq)}


@pytest.mark.parametrize("seq", [0, 1, 4])
async def test_a_changed_payload_is_named(store: Store, seq: int) -> None:
    run = await three_runs(store)
    await raw(
        store,
        f"UPDATE {{}}event SET sealed = substr(sealed, 2) WHERE run_id = '{run.run_id}'"
        f" AND seq = {seq}",
    )
    assert places((await verify_store(store)).findings) == {("entry_altered", run.run_id, seq)}


async def test_an_unreadable_entry_is_named_and_the_rest_is_audited(store: Store) -> None:
    run = await three_runs(store)
    await raw(store, f"UPDATE {{}}event SET body = '' WHERE run_id = '{run.run_id}' AND seq = 5")
    found = places((await audit_store(store)).findings)
    assert ("entry_unreadable", run.run_id, 5) in found


async def test_a_dropped_run_leaves_orphans_that_are_named(store: Store) -> None:
    run = await three_runs(store)
    await raw(store, f"DELETE FROM {{}}run WHERE id = '{run.run_id}'")
    assert places((await audit_store(store)).findings) == {("run_missing", run.run_id, 11)}


async def test_a_surplus_entry_is_named(store: Store) -> None:
    run = await three_runs(store)
    await raw(
        store,
        "INSERT INTO {0}event SELECT run_id, seq + 1, at_ms, body, prev, sealed, erased"
        f" FROM {{0}}event WHERE run_id = '{run.run_id}' AND seq = 11",
    )
    assert ("entry_surplus", run.run_id, 12) in places((await audit_store(store)).findings)
    assert ("entry_surplus", run.run_id, 12) in places((await verify_store(store)).findings)


async def test_the_journal_of_another_run_is_found(store: Store) -> None:
    run = await three_runs(store)
    stranger = Driven()
    await raw(
        store, f"UPDATE {{}}event SET run_id = '{stranger.run_id}' WHERE run_id = '{run.run_id}'"
    )
    found = places((await verify_store(store)).findings)
    assert ("entry_altered", stranger.run_id, 0) in found
    assert ("entry_missing", run.run_id, 0) in found


async def test_erased_payloads_pass_audit_and_verify(store: Store) -> None:
    run = await three_runs(store)
    assert await store.erase_payloads(run.run_id, 0, 12) == 6
    assert (await audit_store(store)).is_clean
    assert (await verify_store(store)).is_clean
    assert all(entry.payload is None for entry in await store.entries(run.run_id))


async def test_verify_returns_heads_for_anchoring(store: Store) -> None:
    run = await three_runs(store)
    heads = {seen.run_id: seen.head async for seen in verify_runs(store)}
    assert heads[run.run_id] == run.journal.head
    assert len(heads) == 3


async def test_inspections_stream_run_by_run(store: Store) -> None:
    await three_runs(store)
    seen = []
    async for inspection in audit_runs(store):
        seen.append(inspection.run_id)
        if len(seen) == 1:
            await begun(store, run_id=some_run_id(NOW + 1))
    assert len(seen) == 3, (
        "a run that starts meanwhile is for the next inspection: else it might never end"
    )
    assert seen == sorted(seen)


DAMAGE = {
    "an erasure mark beside a payload": "UPDATE {0}event SET erased = prev WHERE seq = 1",
    "an erasure mark without a digest": "UPDATE {0}event SET erased = substr(prev, 1, 0) WHERE seq = 2",
    "an entry before the first": (
        "INSERT INTO {0}event SELECT run_id, -1, at_ms, body, prev, sealed, erased"
        " FROM {0}event WHERE seq = 5 AND run_id IN (SELECT min(id) FROM {0}run)"
    ),
    "an entry far after the last": "UPDATE {0}event SET seq = 8589934592 WHERE seq = 5",
    "a sequence far beyond the journal": "UPDATE {0}run SET seq = 4294967294",
    "an account that nothing was posted to": (
        "INSERT INTO {0}ledger SELECT min(id), 'step:root.99', 0 FROM {0}run"
    ),
    "a status that does not exist": "UPDATE {0}run SET status = 'zzz'",
    "a time before 1970": "UPDATE {0}event SET at_ms = -1 WHERE seq = 3",
    "a step without a name": (
        "UPDATE {0}event SET body = replace(body, 'root.1', '') WHERE seq = 1"
    ),
    "a run without a journal": "DELETE FROM {0}event",
    "a wrong head": "UPDATE {0}run SET head = substr(head, 2)",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_found_and_does_not_stop_the_inspection(store: Store, damage: str) -> None:
    await three_runs(store)
    await raw(store, DAMAGE[damage])
    reports = await audit_store(store), await verify_store(store)
    findings = [finding for report in reports for finding in report.findings]
    assert findings, damage
    assert len(findings) < 100, "a wide gap is one finding"
    assert all(report.runs == 3 for report in reports), "every run was looked at"


async def test_invalid_text_in_a_row_is_found(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/store.db")
    await three_runs(store)
    await raw(store, "UPDATE {}event SET body = CAST(x'ff' AS TEXT) WHERE seq = 5")
    assert {finding.seq for finding in (await verify_store(store)).findings} == {5}
    assert {finding.name for finding in (await audit_store(store)).findings} >= {"entry_unreadable"}
    await store.close()
