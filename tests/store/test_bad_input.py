"""Values that a bundle or a call refuses: the same typed error on every store, and no change."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec
import pytest

from perdure.core.errors import (
    GuidReused,
    InputError,
    InvalidId,
    PayloadTooLarge,
    PerdureError,
)
from perdure.core.ids import Guid, HostId, RunId, StepId
from perdure.core.journal import events as e
from perdure.core.ledger import AccountId
from perdure.core.limits import MAX_KEY_LENGTH, MAX_NAME_LENGTH, MAX_PAYLOAD_BYTES
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.hosts import HostScope, NewHost
from perdure.store.rows.records import Claim, InboxRow, NewProgram
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, Driven, assert_typed, begun, contents, sending

pytestmark = pytest.mark.asyncio

HUGE = 2**70
BAD_TEXTS = {"NUL": "a\0b", "lone surrogate": "a\udc80b"}

T = TypeVar("T")
Attempt = Callable[[Driven], object]
Call = Callable[[Store, Driven], Awaitable[object]]


def acknowledging(run: Driven, guid: str) -> None:
    Bundle().acknowledge(run.fence, Guid(guid))


def starting_with(field: str, _: Driven, value: object) -> None:
    run = Driven()
    appended = run.append(run.first_event(run.new))
    Bundle().create_run(msgspec.structs.replace(run.new, **{field: value}), appended)


def sending_with(field: str, run: Driven, value: object) -> None:
    sending(msgspec.structs.replace(run.message("m"), **{field: value}))


def putting_with(field: str, run: Driven, value: object) -> None:
    Bundle().put_work(run.fence, msgspec.structs.replace(run.work(), **{field: value}))


def delivering_with(field: str, run: Driven, value: object) -> None:
    delivery = InboxRow(StepId("join,0"), StepId("price,0"), "a", 0, b"")
    changed = msgspec.structs.replace(delivery, **{field: value})
    Bundle().deliver(run.fence, *msgspec.structs.astuple(changed))


def hooking_with(field: str, run: Driven, value: object) -> None:
    fields: dict[str, Any] = {"step": "join,0", "topic": "t", "key": "k", "since_ms": NOW}
    Bundle().hook(run.fence, mailbox=run.run_id, kind="wait", **fields | {field: value})


def texts() -> Iterator[tuple[str, Callable[[Driven, str], object]]]:
    """Every field of a bundle that holds text, except ids, which have a form of their own."""
    for field in ("scope", "program", "version", "digest", "key", "owner"):
        yield field, partial(starting_with, field)
    for field in ("kind", "step"):
        yield field, partial(sending_with, field)
    for field in ("queue", "step"):
        yield field, partial(putting_with, field)
    yield "guid", acknowledging
    yield "guid", lambda r, t: Bundle().mark(r.fence, Guid(t), "dead", "why")
    yield "reason", lambda r, t: Bundle().mark(r.fence, r.guid("m"), "dead", t)
    yield "step", lambda r, t: Bundle().finish_work(r.run_id, StepId(t), "token")
    yield "token", lambda r, t: Bundle().finish_work(r.run_id, StepId("root.1"), t)
    yield "step", lambda r, t: Bundle().drop_work(r.fence, StepId(t))
    yield "name", lambda r, t: Bundle().publish(r.run_id, t, b"", NOW)
    yield "reason", lambda r, t: Bundle().park(r.fence, t)
    yield "step", lambda r, t: Bundle().track(r.fence, StepId(t), 2, 1)
    yield "step", lambda r, t: Bundle().ready(r.fence, StepId(t))
    yield "step", lambda r, t: Bundle().unhook(r.fence, StepId(t))
    for field in ("step", "source", "variable"):
        yield field, partial(delivering_with, field)
    for field in ("step", "topic", "key"):
        yield field, partial(hooking_with, field)
    yield "kind", lambda r, t: Bundle().broadcast(r.fence, r.run_id, t, None, "0" * 32, NOW, False)


def account_with_nul(run: Driven) -> None:
    step = StepId("root\0x")
    run.appending(
        e.InvokeCompleted(run.step_id, 1), e.ExecutionResumed(), e.InvokeScheduled(step, "charge")
    )


def integers() -> Iterator[tuple[str, int, Callable[[Driven, int], object]]]:
    """Every field of a bundle that holds a number."""
    for number in (HUGE, -HUGE, 2**63):
        yield "created_at_ms", number, partial(starting_with, "created_at_ms")
        yield "due_at_ms", number, partial(sending_with, "due_at_ms")
        yield "arrival", number, partial(sending_with, "arrival")
        yield "available_at_ms", number, partial(putting_with, "available_at_ms")
        yield "at_ms", number, lambda r, n: Bundle().publish(r.run_id, "progress", b"", n)
        yield "required", number, lambda r, n: Bundle().track(r.fence, StepId("join,0"), n, 1)
        yield "position", number, partial(delivering_with, "position")
        yield "since_ms", number, partial(hooking_with, "since_ms")
        yield (
            "now_ms",
            number,
            lambda r, n: Bundle().broadcast(r.fence, r.run_id, "k", None, "0" * 32, n, False),
        )
    for number in (2**31, -(2**31) - 1):
        yield "priority", number, partial(putting_with, "priority")
    yield (
        "at_ms",
        2**63,
        lambda r, n: Bundle().append(r.fence, r.append(e.RunPaused(), at_ms=n)),
    )


def _with(attempt: Callable[[Driven, T], object], value: T, run: Driven) -> object:
    return attempt(run, value)


async def refused(store: Store, run: Driven, attempt: Attempt) -> PerdureError:
    """The error of an attempt that changes nothing."""
    before = await contents(store)
    with pytest.raises(InputError) as caught:
        attempt(run)
    assert await contents(store) == before
    return caught.value


@pytest.mark.parametrize("bad", BAD_TEXTS)
async def test_bundles_refuse_text_that_a_database_can_not_hold(store: Store, bad: str) -> None:
    run = await begun(store)
    text = BAD_TEXTS[bad]
    for place, attempt in texts():
        error = await refused(store, run, partial(_with, attempt, text))
        assert_typed(error, "input", place, repr(text), bad)


async def test_a_step_that_a_database_can_not_hold_is_refused_before_it_is_an_account(
    store: Store,
) -> None:
    run = await begun(store)
    error = await refused(store, run, account_with_nul)
    assert_typed(error, "input", "account", "NUL")


async def test_numbers_over_64_bits_are_refused_everywhere(store: Store) -> None:
    run = await begun(store)
    for place, number, attempt in integers():
        error = await refused(store, run, partial(_with, attempt, number))
        assert_typed(error, "input", place, str(number))


async def test_the_largest_numbers_are_stored(store: Store) -> None:
    run = await begun(store)
    last = 2**63 - 1
    message = run.message("m", due_at_ms=last, arrival=-(2**63))
    await store.commit(sending(message))
    assert await store.due_messages(HOST, last, 10) == [message]
    bundle = Bundle()
    bundle.put_work(run.fence, run.work(priority=2**31 - 1, at_ms=-(2**63)))
    await store.commit(bundle)
    (claim,) = await store.claim_work(HOST, ["gpu"], "t", NOW, 1, 1)
    assert claim.work.priority == 2**31 - 1


async def test_text_of_every_plane_is_stored(store: Store) -> None:
    text = "café \u20ac \U0001f600 '\"%\\ \n\t\x01"
    run = Driven(key=text)
    await store.commit(run.start(scope=text, program=text))
    found = await store.run_by_key(text, text, text)
    assert found is not None
    assert (found.run_id, found.scope, found.program, found.key) == (run.run_id, text, text, text)


CALLS: dict[str, Callable[[str], Call]] = {
    "run": lambda t: lambda s, _: s.run(RunId(t)),
    "run_by_key": lambda t: lambda s, _: s.run_by_key("", "checkout", t),
    "open_runs": lambda t: lambda s, _: s.open_runs(HostId(t)),
    "open_ids": lambda t: lambda s, _: s.open_ids(RunId(t), 1),
    "open_ids, program": lambda t: lambda s, _: s.open_ids(None, 1, [t]),
    "entries": lambda t: lambda s, _: s.entries(RunId(t)),
    "balance": lambda t: lambda s, r: s.balance(r.run_id, AccountId(t)),
    "balances": lambda t: lambda s, _: s.balances(RunId(t)),
    "due_messages": lambda t: lambda s, _: s.due_messages(HostId(t), NOW, 1),
    "messages": lambda t: lambda s, _: s.messages(RunId(t)),
    "claim_runs": lambda t: lambda s, _: s.claim_runs(HostId(t), 1),
    "take_over": lambda t: lambda s, _: s.take_over(HOST, HostId(t), 1),
    "take_run": lambda t: lambda s, _: s.take_run(RunId(t), HOST, HOST),
    "take_run, owner": lambda t: lambda s, r: s.take_run(r.run_id, HOST, HostId(t)),
    "release_run": lambda t: lambda s, _: s.release_run(Fence(RunId(t), 1)),
    "claim_work, queue": lambda t: lambda s, _: s.claim_work(HOST, [t], "t", NOW, 1, 1),
    "claim_work, token": lambda t: lambda s, _: s.claim_work(HOST, ["gpu"], t, NOW, 1, 1),
    "return_work": lambda t: lambda s, _: s.return_work(HostId(t), NOW),
    "erase_payloads": lambda t: lambda s, _: s.erase_payloads(RunId(t), 0, 9),
    "claim_runs, program": lambda t: lambda s, _: s.claim_runs(HOST, 1, [t]),
    "release_runs": lambda t: lambda s, _: s.release_runs(HostId(t)),
    "next_due": lambda t: lambda s, _: s.next_due(HostId(t)),
    "count_open_of": lambda t: lambda s, _: s.count_open_of([HostId(t)], 1),
    "count_open": lambda t: lambda s, _: s.count_open(HostId(t)),
    "register_host": lambda t: lambda s, _: s.register_host(NewHost(HostId(t), 1, (), NOW)),
    "register_host, queue": lambda t: lambda s, _: s.register_host(NewHost(HOST, 1, (t,), NOW)),
    "remove_host": lambda t: lambda s, _: s.remove_host(HostId(t)),
    "host_snapshot": lambda t: lambda s, _: s.host_snapshot(HostScope(HostId(t), (), (), NOW)),
    "host_snapshot, queue": lambda t: lambda s, _: s.host_snapshot(HostScope(HOST, (t,), (), NOW)),
    "host_snapshot, program": lambda t: (
        lambda s, _: s.host_snapshot(HostScope(HOST, (), (t,), NOW))
    ),
    "published": lambda t: lambda s, _: s.published(RunId(t)),
    "streams": lambda t: lambda s, _: s.streams(RunId(t)),
    "chunks": lambda t: lambda s, _: s.chunks(RunId(t), "tokens", 0, 1),
    "chunks, name": lambda t: lambda s, r: s.chunks(r.run_id, t, 0, 1),
    "spans, name": lambda t: lambda s, r: s.spans(r.run_id, t, 1),
    "return_claims": lambda t: lambda s, r: s.return_claims([Claim(r.work(), t, 1)], NOW),
    "return_stopped": lambda t: lambda s, r: s.return_stopped([Claim(r.work(), t, 1)], NOW),
    "next_work": lambda t: lambda s, _: s.next_work([t]),
    "load": lambda t: lambda s, _: s.load([RunId(t)]),
    "readiness": lambda t: lambda s, _: s.readiness(RunId(t)),
    "list_rows": lambda t: lambda s, _: s.list_rows(RunId(t)),
    "inbox": lambda t: lambda s, _: s.inbox(RunId(t)),
    "hooks_waiting": lambda t: lambda s, _: s.hooks_waiting(RunId(t)),
    "statistics": lambda t: lambda s, _: s.statistics(t, "country"),
    "statistics, name": lambda t: lambda s, _: s.statistics("checkout", t),
    "deploy_programs": lambda t: (
        lambda s, _: s.deploy_programs([NewProgram(t, "1", "d", "{}")], NOW)
    ),
    "activate_program": lambda t: lambda s, _: s.activate_program(t, "1"),
    "activate_program, version": lambda t: lambda s, _: s.activate_program("checkout", t),
    "program": lambda t: lambda s, _: s.program(t),
    "program, version": lambda t: lambda s, _: s.program("checkout", t),
}

NUMBERED: dict[str, Call] = {
    "register_host": lambda s, _: s.register_host(NewHost(HOST, 1, (), HUGE)),
    "register_host, threshold": lambda s, _: s.register_host(NewHost(HOST, HUGE, (), NOW)),
    "host_snapshot": lambda s, _: s.host_snapshot(HostScope(HOST, (), (), HUGE)),
    "next_due": lambda s, _: s.next_due(HOST, HUGE),
    "due_messages": lambda s, _: s.due_messages(HOST, HUGE, 1),
    "due_messages, limit": lambda s, _: s.due_messages(HOST, NOW, HUGE),
    "claim_work, now": lambda s, _: s.claim_work(HOST, ["gpu"], "t", HUGE, 1, 1),
    "claim_work, lease": lambda s, _: s.claim_work(HOST, ["gpu"], "t", NOW, HUGE, 1),
    "renew_work": lambda s, _: s.renew_work([], HUGE),
    "return_work": lambda s, _: s.return_work(HOST, HUGE),
    "return_claims": lambda s, _: s.return_claims([], HUGE),
    "return_stopped": lambda s, _: s.return_stopped([], HUGE),
    "entries": lambda s, r: s.entries(r.run_id, 0, HUGE),
    "open_ids": lambda s, _: s.open_ids(None, HUGE),
    "erase_payloads": lambda s, r: s.erase_payloads(r.run_id, 0, HUGE),
    "claim_runs": lambda s, _: s.claim_runs(HOST, HUGE),
    "chunks": lambda s, r: s.chunks(r.run_id, "tokens", HUGE, 1),
    "chunks, limit": lambda s, r: s.chunks(r.run_id, "tokens", 0, HUGE),
    "spans": lambda s, r: s.spans(r.run_id, "tokens", HUGE),
    "take_over": lambda s, _: s.take_over(HOST, HOST, HUGE),
    "match_hooks": lambda s, _: s.match_hooks(HUGE),
    "match_hooks, limit": lambda s, _: s.match_hooks(NOW, HUGE),
    "deploy_programs": lambda s, _: s.deploy_programs(
        [NewProgram("checkout", "1", "d", "{}")], HUGE
    ),
    "release_run": lambda s, r: s.release_run(Fence(r.run_id, HUGE)),
}


async def test_calls_refuse_text_that_a_database_can_not_hold(store: Store) -> None:
    run = await begun(store, owner=None)
    before = await contents(store)
    for name, call in CALLS.items():
        for text in BAD_TEXTS.values():
            with pytest.raises(InputError) as caught:
                await call(text)(store, run)
            assert_typed(caught.value, "input", repr(text))
            assert await contents(store) == before, name


async def test_calls_refuse_numbers_over_64_bits(store: Store) -> None:
    run = await begun(store, owner=None)
    before = await contents(store)
    for name, call in NUMBERED.items():
        with pytest.raises(InputError) as caught:
            await call(store, run)
        assert_typed(caught.value, "input", "does not fit 64 bits")
        assert await contents(store) == before, name


def too_large(run: Driven) -> dict[str, Attempt]:
    payload = b"x" * (MAX_PAYLOAD_BYTES + 1)
    replace = msgspec.structs.replace
    return {
        "message": lambda r: sending(replace(r.message("m"), payload=payload)),
        "work": lambda r: Bundle().put_work(r.fence, replace(r.work(), payload=payload)),
        "entry": lambda r: r.appending(e.InvokeCompleted(r.step_id, 1, payload=payload)),
        "value 'big'": lambda r: Bundle().deliver(
            r.fence, StepId("join,0"), StepId("price,0"), "big", 0, payload
        ),
        "broadcast": lambda r: Bundle().broadcast(
            r.fence, r.run_id, "signal", payload, "0" * 32, NOW, False
        ),
        "published value 'big'": lambda r: Bundle().publish(r.run_id, "big", payload, NOW),
    }


async def test_a_payload_over_the_limit_is_refused(store: Store) -> None:
    run = await begun(store)
    for place, attempt in too_large(run).items():
        error = await refused(store, run, attempt)
        assert isinstance(error, PayloadTooLarge)
        assert_typed(error, "payload-too-large", place, f"{MAX_PAYLOAD_BYTES:,}")


async def test_a_payload_at_the_limit_is_stored(store: Store) -> None:
    run = await begun(store)
    payload = b"\0" * MAX_PAYLOAD_BYTES
    await store.commit(run.appending(e.InvokeCompleted(run.step_id, 1, payload=payload)))
    assert (await store.entries(run.run_id, 4))[0].payload == payload


LONG: dict[str, tuple[int, Callable[[Driven, str], object]]] = {
    "scope": (MAX_NAME_LENGTH, lambda _, t: Driven().start(scope=t)),
    "program": (MAX_NAME_LENGTH, lambda _, t: Driven().start(program=t)),
    "key": (MAX_KEY_LENGTH, lambda _, t: Driven().start(key=t)),
    "queue": (MAX_NAME_LENGTH, lambda r, t: Bundle().put_work(r.fence, r.work(queue=t))),
    "step": (1024, lambda r, t: Bundle().put_work(r.fence, r.work(t))),
    "name": (MAX_NAME_LENGTH, lambda r, t: Bundle().publish(r.run_id, t, b"", NOW)),
    "source": (1024, partial(delivering_with, "source")),
    "variable": (MAX_NAME_LENGTH, partial(delivering_with, "variable")),
    "topic": (MAX_NAME_LENGTH, partial(hooking_with, "topic")),
}


async def test_text_that_is_too_long_for_a_key_is_refused(store: Store) -> None:
    run = await begun(store)
    for place, (limit, attempt) in LONG.items():
        for text in ("x" * (limit + 1), "\u20ac" * (limit // 3 + 1)):
            error = await refused(store, run, partial(_with, attempt, text))
            assert isinstance(error, InvalidId)
            assert_typed(error, "invalid-id", place, str(len(text.encode())))


async def test_the_longest_keys_are_stored(store: Store) -> None:
    """Incompressible characters of several bytes: the hardest case for an index."""

    def noise(limit: int) -> str:
        number, text = 1, ""
        while len((text + "\U0001f600").encode()) <= limit:
            number = number * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            text += chr(0x1F300 + (number >> 33) % 700)
        return text

    run = Driven(key=noise(MAX_KEY_LENGTH))
    name = noise(MAX_NAME_LENGTH)
    await store.commit(run.start(scope=name, program=name))
    step = StepId(noise(1024))
    await store.commit(run.appending(e.InvokeScheduled(step, "charge")))
    bundle = Bundle()
    bundle.put_work(run.fence, run.work(step, queue=name))
    await store.commit(bundle)
    assert len(await store.claim_work(HOST, [name], "t", NOW, 1, 1)) == 1


async def test_an_id_that_perdure_did_not_make_is_refused(store: Store) -> None:
    run = await begun(store)
    replace = msgspec.structs.replace
    attempts: dict[str, Attempt] = {
        "'run-1'": lambda r: sending(replace(r.message("m"), run_id=RunId("run-1"))),
        "'m_1'": lambda r: sending(replace(r.message("m"), guid=Guid("m_1"))),
        "'r_1'": lambda _: Driven(run_id=RunId("r_1")).start(),
        "'r_2'": lambda _: Bundle().finish_work(RunId("r_2"), StepId("root.1"), "t"),
        "'r_4'": lambda _: Bundle().publish(RunId("r_4"), "progress", b"", NOW),
        "'m_3'": lambda r: Bundle().put_work(r.fence, replace(r.work(), guid=Guid("m_3"))),
    }
    for value, attempt in attempts.items():
        assert_typed(await refused(store, run, attempt), "invalid-id", value)


async def test_a_value_without_a_name_is_not_published(store: Store) -> None:
    run = await begun(store)
    error = await refused(store, run, lambda r: Bundle().publish(r.run_id, "", b"1", NOW))
    assert_typed(error, "invalid-id", run.run_id, "empty name")


async def test_a_guid_of_one_run_is_refused_for_another(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    replace = msgspec.structs.replace
    for attempt in (
        lambda r: sending(replace(r.message("m"), run_id=other.run_id)),
        lambda r: Bundle().put_work(r.fence, replace(r.work(), guid=other.guid("m"))),
    ):
        error = await refused(store, run, attempt)
        assert isinstance(error, GuidReused)
        assert_typed(error, "guid-reused", run.run_id, other.run_id)


async def test_writes_under_the_fence_of_another_run_are_refused(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    attempts: list[Attempt] = [
        lambda r: Bundle().append(other.fence, r.append(e.Posted("note", ()))),
        lambda r: Bundle().put_work(other.fence, r.work()),
        lambda r: Bundle().create_run(other.new, r.append(e.Posted("note", ()))),
    ]
    for attempt in attempts:
        assert_typed(await refused(store, run, attempt), "input", run.run_id, other.run_id)


async def test_a_run_is_not_created_in_its_middle(store: Store) -> None:
    run = await begun(store)
    error = await refused(
        store, run, lambda r: Bundle().create_run(r.new, r.append(e.Posted("note", ())))
    )
    assert_typed(error, "input", "from 4 on")


async def test_one_bundle_creates_a_run_and_finishes_a_task_once(store: Store) -> None:
    run = await begun(store)

    def creating_twice(second: Driven) -> None:
        bundle = Driven(key="k").start()
        bundle.create_run(second.new, second.start().created[0][1])

    def finishing_twice(r: Driven) -> None:
        bundle = Bundle()
        bundle.finish_work(r.run_id, StepId("root.1"), "a")
        bundle.finish_work(r.run_id, StepId("root.1"), "b")

    error = await refused(store, run, lambda _: creating_twice(Driven(key="k")))
    assert_typed(error, "input", "'k'", "twice")
    assert_typed(await refused(store, run, finishing_twice), "input", "'root.1'", "twice")


async def test_a_message_is_marked_stale_or_dead_and_nothing_else(store: Store) -> None:
    run = await begun(store)
    error = await refused(
        store, run, lambda r: Bundle().mark(r.fence, r.guid("m"), "pending", "why")
    )
    assert_typed(error, "input", "'pending'")
