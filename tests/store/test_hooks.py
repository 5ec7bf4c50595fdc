"""How signals find the hooks that wait for them, and broadcasts the runs of a search key."""

import asyncio
from collections.abc import Callable

import pytest

from perdure.core.errors import InputError, InvalidId, StaleFence
from perdure.core.graph.identity import mailbox_of
from perdure.core.ids import Guid, RunId, StepId, message_guid
from perdure.core.journal.state import Status
from perdure.core.messages import Message
from perdure.store.commit.bundle import Bundle
from perdure.store.opening import open_store
from perdure.store.postgres.store import PostgresStore
from perdure.store.rows.hosts import HostScope
from perdure.store.rows.records import HookRow
from perdure.store.store import Store
from tests.store.builders import (
    HOST,
    NOW,
    OTHER_HOST,
    Driven,
    Meter,
    assert_typed,
    begun,
    contents,
    raw,
    sending,
    together,
)
from tests.store.failing import fail_once, lose_after_commit

pytestmark = pytest.mark.asyncio

TOPIC, KEY = "approved", "order-42"
MAILBOX = mailbox_of(TOPIC, KEY)
STEP = StepId("approval,0")
SUFFIX = "ab" * 16


def hooking(
    run: Driven, kind: str = "wait", *, step: StepId = STEP, key: str = KEY, since_ms: int = NOW
) -> Bundle:
    bundle = Bundle()
    bundle.hook(run.fence, step, mailbox_of(TOPIC, key), kind, TOPIC, key, since_ms)
    return bundle


def signal(name: str, *, key: str = KEY, arrival: int = NOW, due_at_ms: int = NOW) -> Message:
    mailbox = mailbox_of(TOPIC, key)
    guid = message_guid(mailbox, "signal", name)
    return Message(mailbox, guid, f"signal:{TOPIC}", due_at_ms, arrival, None, name.encode())


def broadcasting(run: Driven, *, suffix: str = SUFFIX, scrub: bool = False) -> Bundle:
    bundle = Bundle()
    bundle.broadcast(run.fence, MAILBOX, "signal:all", b"1", suffix, NOW, scrub)
    return bundle


async def keys(store: Store) -> set[str]:
    """The runs that a search key finds."""
    rows = await raw(store, "SELECT run_id, mailbox FROM {}hook WHERE kind = 'key'")
    return {run_id for run_id, mailbox in rows if not mailbox.startswith("scrubbed ")}


async def test_a_signal_goes_to_the_step_that_waits_for_it(store: Store) -> None:
    run = await begun(store)
    await store.commit(hooking(run))
    assert await store.hooks_waiting(run.run_id) == [
        HookRow(run.run_id, STEP, "wait", MAILBOX, TOPIC, KEY, NOW)
    ]
    assert await store.match_hooks(NOW) == []
    sent = signal("yes")
    await store.commit(sending(sent))
    (moved,) = await store.match_hooks(NOW)
    assert moved == Message(run.run_id, sent.guid, sent.kind, NOW, NOW, STEP, b"yes")
    assert await store.due_messages(HOST, NOW, 10) == [moved]
    assert await store.hooks_waiting(run.run_id) == []
    assert await store.messages(MAILBOX) == []
    assert await store.match_hooks(NOW) == []


async def test_a_signal_sent_before_its_hook_waits_for_it(store: Store) -> None:
    run = await begun(store)
    await store.commit(sending(signal("yes"), signal("later", due_at_ms=NOW + 1)))
    assert await store.match_hooks(NOW) == []
    await store.commit(hooking(run))
    await store.commit(hooking(run, step=StepId("approval,1")))
    assert [message.payload for message in await store.match_hooks(NOW)] == [b"yes"]
    assert [message.payload for message in await store.match_hooks(NOW + 1)] == [b"later"]


async def test_a_signal_in_its_mailbox_is_delivered_to_no_run_and_passes_the_audit(
    store: Store,
) -> None:
    await begun(store)
    await store.commit(sending(signal("yes")))
    assert await store.due_messages(HOST, NOW, 10) == []
    assert await store.next_due(HOST) is None
    assert (await store.host_snapshot(HostScope(HOST, (), (), NOW))).next_due_ms is None
    assert [books.run_id async for books in store.books()] != [MAILBOX]
    assert await store.run(MAILBOX) is None


async def test_the_oldest_signal_goes_to_the_hook_that_has_waited_longest(store: Store) -> None:
    runs = [await begun(store) for _ in range(4)]
    for run, since_ms in zip(runs, (NOW + 3, NOW + 1, NOW + 2, NOW + 1), strict=True):
        await store.commit(hooking(run, since_ms=since_ms))
    for name, arrival in (("b", 2), ("a", 1), ("c", 3)):
        await store.commit(sending(signal(name, arrival=arrival)))
    moved = await store.match_hooks(NOW)
    first, second = sorted([runs[1].run_id, runs[3].run_id])
    assert [(message.run_id, message.payload) for message in moved] == [
        (first, b"a"),
        (second, b"b"),
        (runs[2].run_id, b"c"),
    ]
    assert len(await store.hooks_waiting(runs[0].run_id)) == 1


async def test_signals_match_only_hooks_of_their_mailbox_up_to_a_limit(store: Store) -> None:
    runs = [await begun(store) for _ in range(6)]
    for number, run in enumerate(runs):
        await store.commit(hooking(run, key=str(number % 3)))
    await store.commit(
        sending(*(signal(f"{k}{n}", key=str(k)) for k in range(3) for n in range(3)))
    )
    matched: list[Message] = []
    for expected in (4, 2, 0):
        found = await store.match_hooks(NOW, 4)
        assert len(found) == expected
        matched += found
    expected_kinds = [(run.run_id, str(number % 3)) for number, run in enumerate(runs)]
    assert sorted((m.run_id, (m.payload or b"").decode()[0]) for m in matched) == sorted(
        expected_kinds
    )
    assert len({message.guid for message in matched}) == 6


async def test_a_hook_of_a_run_that_is_over_gets_nothing(store: Store) -> None:
    ended, run = await begun(store), await begun(store)
    await store.commit(hooking(ended))
    await store.commit(ended.finish())
    await store.commit(hooking(run, since_ms=NOW + 5))
    await store.commit(sending(signal("yes"), signal("again")))
    assert [message.run_id for message in await store.match_hooks(NOW)] == [run.run_id]
    assert await store.match_hooks(NOW) == []


async def test_a_dead_message_or_one_that_the_run_has_received_is_not_matched(
    store: Store,
) -> None:
    """A signal that was sent again after its run had received it: the hook keeps waiting for another."""
    run = await begun(store)
    sent = signal("yes")
    await store.commit(hooking(run))
    await store.commit(sending(sent))
    await store.match_hooks(NOW)
    await store.commit(together(sending(sent), hooking(run, step=StepId("approval,1"))))
    assert await store.match_hooks(NOW) == []
    assert (await store.messages(MAILBOX), len(await store.hooks_waiting(run.run_id))) == ([], 1)
    await store.commit(sending(signal("dead")))
    await raw(store, "UPDATE {}message SET state = 'dead' WHERE run_id = '" + MAILBOX + "'")
    assert await store.match_hooks(NOW) == []
    await store.commit(sending(signal("new")))
    assert [message.payload for message in await store.match_hooks(NOW)] == [b"new"]


async def test_a_hook_is_stored_once_and_deleted_with_its_step_or_its_run(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    await store.commit(hooking(run))
    await store.commit(together(hooking(run, since_ms=NOW + 9), hooking(run, "key")))
    (hook,) = await store.hooks_waiting(run.run_id)
    assert hook.since_ms == NOW
    await store.commit(hooking(run, step=StepId("approval,1")))
    await store.commit(hooking(other))
    unhooking = Bundle()
    unhooking.unhook(run.fence, STEP)
    await store.commit(unhooking)
    assert [hook.step for hook in await store.hooks_waiting(run.run_id)] == ["approval,1"]
    end = Bundle()
    end.untrack_all(run.fence)
    await store.commit(end)
    assert await store.hooks_waiting(run.run_id) == []
    assert len(await store.hooks_waiting(other.run_id)) == 1
    assert await keys(store) == {run.run_id}


async def test_a_stale_owner_changes_no_hook_and_signals_no_run(store: Store) -> None:
    run, other = await begun(store), await begun(store, owner=OTHER_HOST)
    await store.commit(hooking(run))
    await store.commit(hooking(other, "key"))
    await store.take_over(HOST, OTHER_HOST, 10)
    before = await contents(store)
    unhooking, ending = Bundle(), Bundle()
    unhooking.unhook(run.fence, STEP)
    ending.untrack_all(run.fence)
    late = [hooking(run, "key"), unhooking, ending, broadcasting(run, scrub=True)]
    for bundle in late:
        run.fence.broken = False
        with pytest.raises(StaleFence):
            await store.commit(bundle)
        assert await contents(store) == before


async def test_a_broadcast_reaches_every_open_run_that_has_the_key_once(store: Store) -> None:
    sender, stranger, ended = [await begun(store) for _ in range(3)]
    found = [await begun(store) for _ in range(3)]
    for run in (*found, ended):
        await store.commit(hooking(run, "key"))
    await store.commit(hooking(found[0], "key", step=StepId("again,0")))
    await store.commit(hooking(stranger, "key", key="order-43"))
    await store.commit(hooking(stranger))
    await store.commit(ended.finish())
    for _ in range(2):
        await store.commit(together(sender.step(), broadcasting(sender)))
    for run in found:
        ((message, state, reason),) = await store.messages(run.run_id)
        guid = Guid(f"m_{run.run_id[2:]}_{SUFFIX}")
        assert message == Message(run.run_id, guid, "signal:all", 0, NOW, None, b"1")
        assert (state, reason) == ("pending", None)
    for run in (sender, stranger, ended):
        assert await store.messages(run.run_id) == []
    await store.commit(broadcasting(sender, suffix="cd" * 16))
    assert [len(await store.messages(run.run_id)) for run in found] == [2] * 3


async def test_scrubbed_keys_are_not_found_again_but_still_counted(store: Store) -> None:
    sender, run, ended = [await begun(store) for _ in range(3)]
    for driven in (run, ended):
        await store.commit(together(hooking(driven, "key"), hooking(driven, "key", key="other")))
    await store.commit(ended.finish())
    await store.commit(broadcasting(sender, scrub=True))
    await store.commit(broadcasting(sender, suffix="cd" * 16))
    assert len(await store.messages(run.run_id)) == 1
    rows = await raw(store, "SELECT run_id, key, mailbox FROM {}hook")
    left = [(run_id, key) for run_id, key, mailbox in rows if not mailbox.startswith("scrubbed ")]
    assert sorted(left) == sorted(
        [(run.run_id, "other"), (ended.run_id, "other"), (ended.run_id, KEY)]
    )
    counts = await store.statistics("checkout", TOPIC)
    assert counts == [
        (key, status, 1) for key in (KEY, "other") for status in (Status.BLOCKED, Status.COMPLETED)
    ]


async def test_a_run_that_gets_a_scrubbed_key_again_is_found_once_more(store: Store) -> None:
    sender, run = await begun(store), await begun(store)
    for suffix in ("ab" * 16, "cd" * 16):
        await store.commit(hooking(run, "key"))
        await store.commit(broadcasting(sender, suffix=suffix, scrub=True))
    assert len(await store.messages(run.run_id)) == 2
    assert await store.statistics("checkout", TOPIC) == [(KEY, Status.BLOCKED, 1)]


async def test_a_run_that_gets_its_key_in_the_same_bundle_is_found(store: Store) -> None:
    run = Driven()
    await store.commit(together(run.start(), hooking(run, "key"), broadcasting(run)))
    assert len(await store.messages(run.run_id)) == 1


async def test_keys_and_broadcasts_of_a_group_keep_their_order(store: Store) -> None:
    sender, before, after = [await begun(store) for _ in range(3)]
    bundles = [
        hooking(before, "key"),
        broadcasting(sender, scrub=True),
        hooking(after, "key"),
        broadcasting(sender, suffix="cd" * 16, scrub=True),
        broadcasting(sender, suffix="ef" * 16),
    ]
    await asyncio.gather(*map(store.commit, bundles))
    assert [m.guid[-2:] for m, *_ in await store.messages(before.run_id)] == ["ab"]
    assert [m.guid[-2:] for m, *_ in await store.messages(after.run_id)] == ["cd"]
    assert await keys(store) == set()


async def test_hooks_and_broadcasts_of_many_runs_cost_one_statement_each(store: Store) -> None:
    runs = [await begun(store) for _ in range(16)]
    await store.commit(broadcasting(runs[0]))  # the driver of Postgres reads the types once
    meter = await Meter.of(store)
    hooks = [together(hooking(run), hooking(run, "key")) for run in runs]
    for bundle, run in zip(hooks, runs, strict=True):
        bundle.unhook(run.fence, StepId("other,0"))
    await asyncio.gather(*map(store.commit, hooks))
    # Begin, epochs of runs, unhook, hook, commit.
    assert (meter.commits, len(meter.statements)) == (1, 5)
    meter.statements.clear()
    signals = [broadcasting(run, suffix=f"{n:032x}") for n, run in enumerate(runs)]
    await asyncio.gather(*map(store.commit, signals))
    assert (meter.commits, len(meter.statements)) == (1, 4)
    assert [len(await store.messages(run.run_id)) for run in runs] == [16] * 16
    await store.commit(sending(*(signal(str(n)) for n in range(16))))
    meter.statements.clear()
    assert len(await store.match_hooks(NOW)) == 16
    # Begin, pairs, messages to runs and from their mailbox, hooks, commit; Postgres on another connection.
    assert len(meter.statements) <= 7


async def test_nothing_to_match_does_not_take_the_write_lock(store: Store) -> None:
    run = await begun(store)
    await store.commit(hooking(run))
    meter = await Meter.of(store)
    assert await store.match_hooks(NOW) == []
    assert [sql for sql in meter.statements if sql.startswith(("BEGIN", "UPDATE", "DELETE"))] == []


async def test_statistics_count_runs_by_value_and_status(store: Store) -> None:
    runs = [await begun(store) for _ in range(3)]
    for run, value in zip(runs, ("eu", "eu", "us"), strict=True):
        await store.commit(hooking(run, "key", key=value))
    await store.commit(hooking(runs[0], "key", step=StepId("again,0"), key="eu"))
    await store.commit(hooking(runs[0], key="waits"))
    await store.commit(runs[1].finish())
    found = await store.statistics("checkout", TOPIC)
    assert found == [
        ("eu", Status.BLOCKED, 1),
        ("eu", Status.COMPLETED, 1),
        ("us", Status.BLOCKED, 1),
    ]
    assert await store.statistics("other", TOPIC) == []
    assert await store.statistics("checkout", "other") == []


async def test_hosts_that_match_at_once_move_each_signal_once(hosts: tuple[Store, Store]) -> None:
    runs = [await begun(hosts[0]) for _ in range(40)]
    await asyncio.gather(*(hosts[0].commit(hooking(run)) for run in runs))
    await hosts[0].commit(sending(*(signal(str(n), arrival=n) for n in range(60))))
    found = await asyncio.gather(*(hosts[n % 2].match_hooks(NOW, 7) for n in range(24)))
    moved = [message for messages in found for message in messages]
    while more := await hosts[0].match_hooks(NOW):
        moved += more
    assert len(moved) == len({message.guid for message in moved}) == 40
    assert {message.run_id for message in moved} == {run.run_id for run in runs}
    assert len(await hosts[0].messages(MAILBOX)) == 20
    for run in runs:
        assert len(await hosts[1].messages(run.run_id)) == 1
        assert await hosts[1].hooks_waiting(run.run_id) == []


async def test_hosts_match_while_owners_change_their_hooks(hosts: tuple[Store, Store]) -> None:
    """A signal is moved, or waits; a hook that is gone gets none; and no statement waits long for another."""
    runs = [await begun(hosts[0]) for _ in range(20)]

    async def live(run: Driven) -> None:
        for _ in range(5):
            await hosts[0].commit(hooking(run))
            unhooking = Bundle()
            unhooking.unhook(run.fence, STEP)
            await hosts[0].commit(unhooking)

    async def send() -> None:
        for number in range(50):
            await hosts[1].commit(sending(signal(str(number), arrival=number)))

    async def match(store: Store) -> list[Message]:
        return [message for _ in range(15) for message in await store.match_hooks(NOW, 3)]

    async with asyncio.timeout(60):
        *_, first, second = await asyncio.gather(
            *map(live, runs), send(), match(hosts[0]), match(hosts[1])
        )
    moved = [*(first or []), *(second or [])]
    assert len({message.guid for message in moved}) == len(moved)
    waiting = len(await hosts[0].messages(MAILBOX))
    arrived = [len(await hosts[0].messages(run.run_id)) for run in runs]
    assert waiting + sum(arrived) == 50
    assert sum(arrived) == len(moved)


@pytest.mark.postgres
async def test_a_match_skips_rows_that_another_match_has_locked(emptied_postgres: str) -> None:
    first, second = await open_store(emptied_postgres), await open_store(emptied_postgres)
    runs = [await begun(first) for _ in range(2)]
    for number, run in enumerate(runs):
        await first.commit(hooking(run, since_ms=number))
    await first.commit(sending(signal("a", arrival=1), signal("b", arrival=2)))
    assert isinstance(first, PostgresStore)
    connection = first._commits.connection
    assert connection is not None
    async with connection.transaction():
        await connection.execute("SELECT * FROM perdure.hook ORDER BY since_ms LIMIT 1 FOR UPDATE")
        async with asyncio.timeout(60):
            (moved,) = await second.match_hooks(NOW)
    assert (moved.run_id, moved.payload) == (runs[1].run_id, b"b")
    assert [message.payload for message in await second.match_hooks(NOW)] == [b"a"]
    await first.close()
    await second.close()


@pytest.mark.postgres
async def test_two_broadcasts_that_scrub_at_once_reach_a_run_once(emptied_postgres: str) -> None:
    stores = [await open_store(emptied_postgres) for _ in range(2)]
    targets = [await begun(stores[0]) for _ in range(30)]
    senders = [await begun(store) for store in stores]
    for round_ in range(3):
        await asyncio.gather(*(stores[0].commit(hooking(run, "key")) for run in targets))
        await asyncio.gather(
            *(
                store.commit(broadcasting(sender, suffix=f"{round_}{n}" * 16, scrub=True))
                for n, (store, sender) in enumerate(zip(stores, senders, strict=True))
            )
        )
        assert [len(await stores[0].messages(run.run_id)) for run in targets] == [round_ + 1] * 30
    for store in stores:
        await store.close()


@pytest.mark.postgres
async def test_a_broadcast_whose_answer_is_lost_is_sent_once(emptied_postgres: str) -> None:
    store = await open_store(emptied_postgres)
    assert isinstance(store, PostgresStore)
    sender, run = await begun(store), await begun(store)
    await store.commit(hooking(run, "key"))
    fail_once(store, lose_after_commit)
    await store.commit(broadcasting(sender, scrub=True))
    assert len(await store.messages(run.run_id)) == 1
    await store.close()


async def test_bad_hooks_and_broadcasts_are_refused(store: Store) -> None:
    run = await begun(store)
    before = await contents(store)
    b = Bundle()
    attempts: dict[str, Callable[[], object]] = {
        "'else'": lambda: b.hook(run.fence, STEP, MAILBOX, "else", TOPIC, KEY, NOW),
        "'box'": lambda: b.hook(run.fence, STEP, RunId("box"), "wait", TOPIC, KEY, NOW),
        "'box2'": lambda: b.broadcast(run.fence, RunId("box2"), "k", None, SUFFIX, NOW, False),
        "'ABC'": lambda: b.broadcast(run.fence, MAILBOX, "k", None, "ABC", NOW, False),
    }
    for value, attempt in attempts.items():
        with pytest.raises(InputError) as caught:
            attempt()
        assert value in caught.value.what
    with pytest.raises(InvalidId) as invalid:
        b.broadcast(run.fence, MAILBOX, "k", None, SUFFIX + "0", NOW, False)
    assert_typed(invalid.value, "invalid-id", SUFFIX)
    await store.commit(b)
    assert await contents(store) == before


async def test_a_matching_pair_is_reported_in_the_host_snapshot(store: Store) -> None:
    scope = HostScope(HOST, (), (), NOW)

    async def has_pairs() -> bool:
        return (await store.host_snapshot(scope)).has_pairs

    run, other = await begun(store), await begun(store)
    await store.commit(hooking(run))
    await store.commit(hooking(other, "key"))
    await store.commit(sending(signal("for another", key="order-43")))
    assert not await has_pairs()
    await store.commit(sending(signal("later", due_at_ms=NOW + 1)))
    assert not await has_pairs()
    await store.commit(sending(signal("now")))
    assert await has_pairs()
    await store.match_hooks(NOW)
    assert not await has_pairs()
    await store.commit(hooking(run, step=StepId("approval,1")))
    await store.commit(run.finish())
    await store.commit(sending(signal("for nobody")))
    assert not await has_pairs(), "the run is over"


async def tags_of(store: Store, run: Driven) -> list[tuple[object, ...]]:
    return sorted(
        await raw(
            store,
            f"SELECT topic, key, mailbox FROM {{}}hook WHERE run_id = '{run.run_id}' AND kind = 'key'",
        )
    )


def tagging(run: Driven, value: str, before: str | None = None) -> Bundle:
    bundle = Bundle()
    bundle.tag(run.fence, "stage", value, NOW, before)
    return bundle


async def test_a_tag_replaces_its_value_before_in_one_group_or_in_several(store: Store) -> None:
    run = await begun(store)
    for value, before in (("a", None), ("b", "a"), ("a", "b")):
        await store.commit(tagging(run, value, before))
    assert await tags_of(store, run) == [("stage", "a", mailbox_of("stage", "a"))]
    changes = tagging(run, "b", "a"), tagging(run, "a", "b"), tagging(run, "c", "a")
    await asyncio.gather(*map(store.commit, changes))
    assert await tags_of(store, run) == [("stage", "c", mailbox_of("stage", "c"))]
    both = Bundle()
    both.tag(run.fence, "stage", "d", NOW, "c")
    both.tag(run.fence, "stage", "e", NOW, "d")
    await store.commit(both)
    assert await tags_of(store, run) == [("stage", "e", mailbox_of("stage", "e"))]


async def test_a_scrubbed_tag_is_replaced_too(store: Store) -> None:
    run = await begun(store)
    await store.commit(tagging(run, "a"))
    scrub = Bundle()
    scrub.broadcast(run.fence, mailbox_of("stage", "a"), "signal:all", b"1", SUFFIX, NOW, True)
    await store.commit(scrub)
    await store.commit(tagging(run, "b", "a"))
    assert await tags_of(store, run) == [("stage", "b", mailbox_of("stage", "b"))]


async def test_a_tag_that_changes_after_a_broadcast_gets_the_broadcast(store: Store) -> None:
    run = await begun(store)
    await store.commit(tagging(run, "a"))
    send = Bundle()
    send.broadcast(run.fence, mailbox_of("stage", "a"), "signal:all", b"1", SUFFIX, NOW, False)
    await asyncio.gather(store.commit(send), store.commit(tagging(run, "b", "a")))
    assert [message.kind for message, _, _ in await store.messages(run.run_id)] == ["signal:all"]
