"""Admission in a store: which starts begin, which wait, and that a run begins once."""

import asyncio

import msgspec
import pytest

from perdure.core.admission.deciding import Fate
from perdure.core.admission.rules import Pace, Rules, Setting
from perdure.core.errors import RunExists
from perdure.core.ids import RunId
from perdure.core.messages import AT_ONCE, Message
from perdure.core.replay.identity import cancel_guid
from perdure.store.admission_table import DELAYED, WAITING, Entrant
from perdure.store.inspection import audit_store, verify_store
from perdure.store.postgres.store import PostgresStore
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, OTHER_HOST, Driven, raw
from tests.store.entrants import PROGRAM, begin, entrant, finish, run_of

pytestmark = pytest.mark.asyncio

ONE = Rules(1)


async def enter(store: Store, *starts: Entrant) -> list[Fate | None]:
    return [each.fate for each in await store.admission.enter(starts, HOST, NOW)]


async def dequeue(store: Store, now_ms: int = NOW) -> list[RunId]:
    return [run.run_id for run in (await store.admission.dequeue(HOST, [PROGRAM], now_ms)).runs]


async def assert_sound(store: Store) -> None:
    assert (await audit_store(store)).is_clean
    assert (await verify_store(store)).is_clean


async def test_starts_over_the_limit_are_pending_and_begin_in_order_when_a_slot_is_free(
    store: Store,
) -> None:
    first, second, third = (entrant(n, ONE) for n in range(3))
    assert await enter(store, first, second) == [Fate.ADMIT, Fate.WAIT]
    assert await enter(store, third) == [Fate.WAIT]
    assert await dequeue(store) == []
    pending = await run_of(store, second)
    assert (pending.owner, pending.epoch, pending.seq, pending.status) == (None, 0, 0, "pending")
    await assert_sound(store)
    await finish(store, first)
    assert await dequeue(store) == [second.run.run_id]
    assert await dequeue(store) == []
    await finish(store, second)
    assert await dequeue(store) == [third.run.run_id]
    await finish(store, third)
    assert await raw(store, "SELECT count(*) FROM {}pending") == [(0,)]
    assert await raw(store, "SELECT count(*) FROM {}message") == [(0,)]


async def test_any_number_of_hosts_admit_at_once_and_each_run_is_admitted_once(
    store: Store,
) -> None:
    starts = [entrant(n, Rules(3)) for n in range(8)]
    await enter(store, *starts)
    for start in starts[:3]:
        await finish(store, start)
    looks = [
        store.admission.dequeue(host, [PROGRAM], NOW) for host in (HOST, OTHER_HOST) for _ in "1234"
    ]
    admitted = [run for found in await asyncio.gather(*looks) for run in found.runs]
    assert sorted(run.run_id for run in admitted) == sorted(s.run.run_id for s in starts[3:6])
    for start in starts[3:]:
        if (await run_of(store, start)).epoch:
            await finish(store, start)
    for run_id in await dequeue(store):
        await finish(store, next(s for s in starts if s.run.run_id == run_id))


async def test_a_key_is_unique_over_pending_and_open_runs(store: Store) -> None:
    first, second, pending = (entrant(n, ONE, key=key) for n, key in enumerate(("a", None, "b")))
    await enter(store, first, second, pending)
    again, other = entrant(9, ONE, key="a"), entrant(10, ONE, key="b")
    entered = await store.admission.enter([again, other], HOST, NOW)
    assert [(each.fate, each.run_id) for each in entered] == [
        (None, first.run.run_id),
        (None, pending.run.run_id),
    ]
    await finish(store, first)


async def test_a_start_without_a_limit_can_not_take_the_key_of_a_pending_run(store: Store) -> None:
    driven = Driven(key="a")
    pending = entrant(0, key="a", state=WAITING)
    run = msgspec.structs.replace(pending.run, program=driven.new.program)
    await enter(store, msgspec.structs.replace(pending, run=run))
    with pytest.raises(RunExists):
        await store.commit(driven.start())


async def test_scopes_have_their_turns_and_the_urgent_go_first_within_one(store: Store) -> None:
    def start(number: int, scope: str, priority: int = 0) -> Entrant:
        return entrant(number, ONE, scope=scope, limit_scope=None, priority=priority)

    holder = start(0, "a")
    a1, a2, a3 = start(1, "a"), start(2, "a", 5), start(3, "a")
    b1, b2 = start(4, "b"), start(5, "b")
    starts = [holder, a1, a2, a3, b1, b2]
    await enter(store, *starts)
    order, running = [], holder
    for _ in range(5):
        await finish(store, running)
        (admitted,) = await dequeue(store)
        running = next(each for each in starts if each.run.run_id == admitted)
        order.append(running)
    await finish(store, running)
    assert order == [a2, b1, a1, b2, a3]


async def test_a_limit_counts_each_key_and_scope_on_its_own(store: Store) -> None:
    fates = await enter(
        store,
        entrant(0, ONE, limit_key="x"),
        entrant(1, ONE, limit_key="y"),
        entrant(2, ONE, limit_key="x", scope="other"),
        entrant(3, ONE, limit_key="x"),
    )
    assert fates == [Fate.ADMIT, Fate.ADMIT, Fate.ADMIT, Fate.WAIT]


async def test_a_host_that_dies_after_it_admitted_a_run_leaves_it_to_the_next(store: Store) -> None:
    first, second = entrant(0, ONE), entrant(1, ONE)
    await enter(store, first, second)
    await finish(store, first)
    await dequeue(store)
    await assert_sound(store)
    taken = await store.take_over(HOST, OTHER_HOST, 10)
    assert [(run.run_id, run.epoch, run.seq) for run in taken] == [(second.run.run_id, 2, 0)]
    assert await dequeue(store) == [], "it holds its slot"
    await begin(store, taken[0])
    await assert_sound(store)


async def test_an_unowned_pending_run_is_claimed_by_no_host(store: Store) -> None:
    await enter(store, entrant(0, ONE), entrant(1, ONE), entrant(2, state=WAITING))
    assert await store.claim_runs(OTHER_HOST, 10) == []
    assert await store.count_open(None) == 0
    assert await store.open_runs(None) == []
    assert len(await store.open_ids(None, 10)) == 1


async def test_runs_of_unknown_programs_are_admitted_without_an_owner(store: Store) -> None:
    first, second = entrant(0, ONE), entrant(1, ONE)
    await enter(store, first, second)
    await finish(store, first)
    admitted = await store.admission.dequeue(HOST, [], NOW)
    assert [(run.owner, run.epoch) for run in admitted.runs] == [(None, 1)]
    assert [run.run_id for run in await store.claim_runs(OTHER_HOST, 10)] == [second.run.run_id]


async def test_delayed_runs_take_their_place_when_their_time_has_come(store: Store) -> None:
    late = entrant(0, state=DELAYED, ready_at_ms=NOW + 50)
    assert await enter(store, late) == [Fate.WAIT]
    assert await dequeue(store, NOW + 49) == []
    assert await dequeue(store, NOW + 50) == [late.run.run_id]


async def test_an_approved_run_begins_and_others_can_not_be_approved(store: Store) -> None:
    asked, limited = entrant(0, state=WAITING), entrant(1, ONE)
    await enter(store, asked, entrant(2, ONE), limited)

    def approval(of: Entrant) -> Message:
        guid = cancel_guid(of.run.run_id)
        return Message(of.run.run_id, guid, "act:APPROVE", AT_ONCE, NOW, payload=b"{}")

    assert not await store.admission.approve(approval(limited), NOW)
    assert await dequeue(store) == []
    assert await store.admission.approve(approval(asked), NOW)
    assert not await store.admission.approve(approval(asked), NOW)
    assert await dequeue(store) == [asked.run.run_id]


async def test_a_cancelled_pending_run_is_admitted_at_once_and_holds_no_slot(store: Store) -> None:
    first, second = entrant(0, ONE), entrant(1, ONE)
    await enter(store, first, second)
    run_id = second.run.run_id
    cancel = Message(run_id, cancel_guid(run_id), "cancel", AT_ONCE, NOW, payload=b"")
    assert await store.admission.call_up(cancel)
    assert await dequeue(store) == [run_id]
    assert (await store.list_rows(run_id)).slot is None
    assert not await store.admission.call_up(cancel), "it is not pending any more"
    assert [slot.running for slot in await store.admission.slots("", "", 10)] == [1]


async def test_join_finds_the_run_that_holds_the_slot(store: Store) -> None:
    rules = Rules(1, over="join")
    holder, joining = entrant(0, rules), entrant(1, rules)
    await enter(store, holder)
    (entered,) = await store.admission.enter([joining], HOST, NOW)
    assert (entered.fate, entered.run_id) == (Fate.JOIN, holder.run.run_id)
    assert await store.run(joining.run.run_id) is None


async def test_replace_cancels_the_holder_and_all_that_wait(store: Store) -> None:
    rules = Rules(1, over="replace")
    holder, second, third = (entrant(n, rules) for n in range(3))
    await enter(store, holder)
    (entered,) = await store.admission.enter([second], HOST, NOW)
    assert [message.run_id for message, _ in entered.cancels] == [holder.run.run_id]
    (entered,) = await store.admission.enter([third], HOST, NOW)
    assert [message.run_id for message, _ in entered.cancels] == [second.run.run_id]
    assert await dequeue(store) == [second.run.run_id], "it begins to end"
    await finish(store, holder)
    assert await dequeue(store) == [third.run.run_id]


async def test_the_rate_admits_at_its_pace(store: Store) -> None:
    rules = Rules(pace=Pace(10, 1000, 2))
    starts = [entrant(n, rules) for n in range(5)]
    assert await enter(store, *starts) == [Fate.ADMIT] * 2 + [Fate.WAIT] * 3
    assert await dequeue(store, NOW + 99) == []
    assert await dequeue(store, NOW + 100) == [starts[2].run.run_id]
    assert await dequeue(store, NOW + 10_000) == [s.run.run_id for s in starts[3:]]


async def test_an_operators_numbers_hold_until_they_are_reset(store: Store) -> None:
    starts = [entrant(n, ONE) for n in range(4)]
    await enter(store, *starts)
    await store.admission.set_limit("L", Setting(running=3), NOW)
    assert await dequeue(store) == [s.run.run_id for s in starts[1:3]]
    assert await store.admission.reset_limit("L")
    assert not await store.admission.reset_limit("L")
    assert await dequeue(store) == []
    assert await enter(store, entrant(9, Rules(5, queued=0))) == [Fate.REJECT]


async def test_a_debounced_run_takes_the_last_input_and_leaves_its_key(store: Store) -> None:
    first = entrant(0, key="k", state=DELAYED, ready_at_ms=NOW + 10, until_ms=NOW + 25)
    await enter(store, first)

    async def put_off(payload: bytes, at_ms: int) -> bool:
        message = msgspec.structs.replace(first.message, payload=payload)
        return await store.admission.put_off(message, at_ms)

    assert await put_off(b"{}\n1", NOW + 20)
    assert await dequeue(store, NOW + 19) == []
    assert await put_off(b"{}\n2", NOW + 40), "not beyond the longest wait"
    assert await dequeue(store, NOW + 25) == [first.run.run_id]
    assert not await put_off(b"{}\n3", NOW + 50)
    (input_,) = [m.payload for m, _, _ in await store.messages(first.run.run_id)]
    assert input_ == b"{}\n2"
    assert (await run_of(store, first)).key is None


@pytest.mark.usefixtures("tampering")
async def test_audit_finds_pending_runs_without_a_place_or_an_input(store: Store) -> None:
    starts = [entrant(n, ONE) for n in range(4)]
    await enter(store, *starts)
    no_place, no_input, done = (s.run.run_id for s in starts[1:])
    await raw(store, f"DELETE FROM {{}}pending WHERE run_id = '{no_place}' RETURNING 1")
    await raw(store, f"DELETE FROM {{}}message WHERE run_id = '{no_input}' RETURNING 1")
    await raw(store, f"UPDATE {{}}run SET epoch = 1 WHERE id = '{done}' RETURNING 1")
    found = {(each.run_id, each.name) for each in (await audit_store(store)).findings}
    assert found == {
        (no_place, "place_missing"),
        (no_input, "entry_missing"),
        (done, "place_surplus"),
    }


@pytest.mark.usefixtures("tampering")
async def test_audit_finds_a_slot_that_the_journal_does_not_know(store: Store) -> None:
    first = entrant(0, ONE)
    await enter(store, first)
    run = await run_of(store, first)
    await begin(store, run)
    await raw(store, f"UPDATE {{}}run SET slot = 'x' WHERE id = '{run.run_id}' RETURNING 1")
    found = (await audit_store(store)).findings
    assert [each.name for each in found] == ["slot_differs"]


async def test_the_view_of_limits_shows_who_holds_and_who_waits(store: Store) -> None:
    await enter(store, *(entrant(n, ONE, scope="acme", limit_key="k") for n in range(3)))
    view = "perdure.perdure_v1_limits" if isinstance(store, PostgresStore) else "perdure_v1_limits"
    rows = await raw(store, f"SELECT name, scope, key, running, waiting FROM {view}")
    assert rows == [("L", "acme", "k", 1, 2)]
