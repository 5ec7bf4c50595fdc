"""Streams of chunks: positions without gaps, in the order of commits, and each chunk once."""

import asyncio

import asyncpg
import pytest

from perdure.core.errors import (
    BundleRefused,
    InputError,
    PayloadTooLarge,
    RunEnded,
    StaleFence,
    UnknownRun,
)
from perdure.core.ids import RunId, StepId
from perdure.core.limits import MAX_NAME_LENGTH, MAX_PAYLOAD_BYTES
from perdure.core.streams.chunks import ROOT, ChunkOrigin, NewChunk, StoredChunk
from perdure.store.commit.bundle import Bundle
from perdure.store.opening import open_store
from perdure.store.postgres.store import PostgresStore
from perdure.store.statements import statements
from perdure.store.store import Store
from tests.store.builders import (
    HOST,
    NOW,
    OTHER_HOST,
    assert_typed,
    begun,
    contents,
    raw,
    some_run_id,
    together,
)
from tests.store.failing import SlowCommit, fail_once, lose_after_commit, lose_before_commit

pytestmark = pytest.mark.asyncio

FIRST = ChunkOrigin(StepId("root.0"))
SECOND = ChunkOrigin(StepId("root.0"), 2)


def chunk(
    run_id: RunId, number: int, origin: ChunkOrigin = FIRST, name: str = "tokens"
) -> NewChunk:
    return NewChunk(run_id, name, origin, number, f"{origin.attempt}-{number}".encode(), NOW)


def appending(*chunks: NewChunk) -> Bundle:
    bundle = Bundle()
    for each in chunks:
        bundle.append_chunk(each)
    return bundle


async def payloads(store: Store, run_id: RunId, name: str = "tokens") -> list[bytes]:
    """Payloads of a whole stream; asserts that its positions have no gap."""
    chunks = await store.chunks(run_id, name, 0, 10_000)
    assert [each.position for each in chunks] == list(range(len(chunks)))
    assert (await store.streams(run_id)).get(name, 0) == len(chunks)
    return [each.payload for each in chunks]


async def test_chunks_read_back_in_the_order_in_which_they_were_appended(store: Store) -> None:
    run_id = (await begun(store)).run_id
    await store.commit(appending(chunk(run_id, 0), chunk(run_id, 1)))
    await store.commit(appending(chunk(run_id, 0, SECOND)))
    assert await store.chunks(run_id, "tokens", 0, 10) == [
        StoredChunk(0, FIRST, b"1-0", NOW),
        StoredChunk(1, FIRST, b"1-1", NOW),
        StoredChunk(2, SECOND, b"2-0", NOW),
    ]


async def test_a_reader_resumes_at_a_position_and_reads_in_batches(store: Store) -> None:
    run_id = (await begun(store)).run_id
    await store.commit(appending(*(chunk(run_id, number) for number in range(10))))
    found = await store.chunks(run_id, "tokens", 4, 3)
    assert [each.position for each in found] == [4, 5, 6]
    assert await store.chunks(run_id, "tokens", 10, 3) == []


async def test_streams_of_other_names_and_runs_do_not_mix(store: Store) -> None:
    run, other = (await begun(store)).run_id, (await begun(store)).run_id
    await store.commit(
        appending(
            chunk(run, 0), chunk(run, 0, name="logs"), chunk(other, 0), chunk(run, 1, name="logs")
        )
    )
    assert await store.streams(run) == {"logs": 2, "tokens": 1}
    assert await payloads(store, run, "logs") == [b"1-0", b"1-1"]
    assert await payloads(store, other) == [b"1-0"]
    assert await store.streams(some_run_id()) == {}
    assert await store.chunks(run, "other", 0, 10) == []


async def test_a_chunk_that_is_written_again_is_stored_once(store: Store) -> None:
    run_id = (await begun(store)).run_id
    await store.commit(appending(chunk(run_id, 0), chunk(run_id, 1)))
    await store.commit(appending(chunk(run_id, 0), chunk(run_id, 1)))
    await store.commit(appending(chunk(run_id, 1), chunk(run_id, 2)))
    assert await payloads(store, run_id) == [b"1-0", b"1-1", b"1-2"]


async def test_a_chunk_that_is_written_twice_in_a_group_or_a_bundle_is_stored_once(
    store: Store,
) -> None:
    run_id = (await begun(store)).run_id
    twice = appending(chunk(run_id, 0), chunk(run_id, 0), chunk(run_id, 1))
    await asyncio.gather(
        store.commit(twice), store.commit(appending(chunk(run_id, 1), chunk(run_id, 2)))
    )
    assert await payloads(store, run_id) == [b"1-0", b"1-1", b"1-2"]


async def test_a_bundle_with_a_known_chunk_writes_its_other_rows(store: Store) -> None:
    run = await begun(store)
    await store.commit(appending(chunk(run.run_id, 0)))
    again = appending(chunk(run.run_id, 0), chunk(run.run_id, 1, name="logs"))
    await asyncio.gather(store.commit(together(run.step(), again)), store.commit(again))
    assert await payloads(store, run.run_id) == [b"1-0"]
    assert await payloads(store, run.run_id, "logs") == [b"1-1"]
    await run.reload(store)


async def test_each_attempt_and_claim_numbers_its_own_chunks(store: Store) -> None:
    run_id = (await begun(store)).run_id
    origins = [
        FIRST,
        SECOND,
        ChunkOrigin(StepId("root.0"), 1, 2),
        ChunkOrigin(StepId("root.1")),
        ROOT,
    ]
    await store.commit(appending(*(chunk(run_id, 0, origin) for origin in origins)))
    found = await store.chunks(run_id, "tokens", 0, 10)
    assert [each.origin for each in found] == origins


async def test_a_chunk_in_the_bundle_of_a_warm_step_is_stored(store: Store) -> None:
    run = await begun(store)
    await store.commit(together(run.step(), appending(chunk(run.run_id, 0, ROOT))))
    assert await payloads(store, run.run_id) == [b"1-0"]


async def test_any_host_may_append_a_chunk_without_changing_the_runs_row(store: Store) -> None:
    run = await begun(store)
    await store.take_over(HOST, OTHER_HOST, 10)
    before = await store.run(run.run_id)
    await store.commit(appending(chunk(run.run_id, 0)))
    assert await payloads(store, run.run_id) == [b"1-0"]
    assert await store.run(run.run_id) == before


async def test_chunks_of_a_rejected_bundle_are_not_stored_and_leave_no_gap(store: Store) -> None:
    run, good = await begun(store), (await begun(store)).run_id
    await store.take_over(HOST, OTHER_HOST, 10)
    rejected = together(run.step(), appending(chunk(good, 7), chunk(run.run_id, 0)))
    outcomes = await asyncio.gather(
        store.commit(appending(chunk(good, 0))),
        store.commit(rejected),
        store.commit(appending(chunk(good, 1))),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), StaleFence, type(None)]
    assert await payloads(store, good) == [b"1-0", b"1-1"]
    assert await store.streams(run.run_id) == {}


async def test_spans_of_each_origin_are_read_without_their_payloads(store: Store) -> None:
    run_id = (await begun(store)).run_id
    parallel = ChunkOrigin(StepId("root.1"))
    for origin, number in [(FIRST, 0), (FIRST, 1), (parallel, 0), (FIRST, 2), (SECOND, 0)]:
        await store.commit(appending(chunk(run_id, number, origin)))
    assert await store.spans(run_id, "tokens", 5) == [
        (FIRST, range(2)),
        (parallel, range(2, 3)),
        (FIRST, range(3, 4)),
        (SECOND, range(4, 5)),
    ]
    assert await store.spans(run_id, "tokens", 1) == [(FIRST, range(1))]
    assert await store.spans(run_id, "tokens", 0) == []
    assert await store.spans(run_id, "other", 9) == []


async def test_the_longest_names_and_the_largest_chunk_are_stored(store: Store) -> None:
    """Incompressible characters of several bytes: the hardest case for an index."""

    def noise(limit: int) -> str:
        number, text = 7, ""
        while len(text.encode()) + 4 <= limit:
            number = number * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            text += chr(0x1F300 + (number >> 33) % 700)
        return text

    run_id = (await begun(store)).run_id
    name, origin = noise(MAX_NAME_LENGTH), ChunkOrigin(StepId(noise(1024)), 2**31 - 1, 2**31 - 1)
    payload = b"\0" * MAX_PAYLOAD_BYTES
    largest = NewChunk(run_id, name, origin, 2**63 - 1, payload, 2**63 - 1)
    await store.commit(appending(largest))
    assert await store.chunks(run_id, name, 0, 1) == [StoredChunk(0, origin, payload, 2**63 - 1)]


async def test_more_chunks_than_fit_in_a_statement_keep_their_order(store: Store) -> None:
    run_id = (await begun(store)).run_id
    bundles = [
        appending(*(chunk(run_id, number, name=name) for name in ("a", "b") for number in numbers))
        for numbers in (range(300), range(300, 1000))
    ]
    await asyncio.gather(*map(store.commit, bundles))
    for name in ("a", "b"):
        assert await payloads(store, run_id, name) == [f"1-{n}".encode() for n in range(1000)]


async def test_hosts_that_append_to_the_same_streams_at_once_leave_no_gap(
    hosts: tuple[Store, Store],
) -> None:
    run_id = (await begun(hosts[0])).run_id
    names = [f"stream {number}" for number in range(10)]
    seen: dict[str, int] = dict.fromkeys(names, 0)

    async def append(store: Store, order: list[str], origin: ChunkOrigin) -> None:
        for number in range(20):
            chunks = [chunk(run_id, number, origin, name) for name in order]
            await store.commit(appending(*chunks))

    async def read() -> None:
        """A reader that resumes at the last position misses nothing."""
        while min(seen.values()) < 40:
            for name in names:
                for each in await hosts[1].chunks(run_id, name, seen[name], 100):
                    assert each.position == seen[name]
                    seen[name] += 1

    async with asyncio.timeout(60):
        await asyncio.gather(
            append(hosts[0], names, FIRST), append(hosts[1], names[::-1], SECOND), read()
        )
    for name in names:
        assert len(await payloads(hosts[0], run_id, name)) == 40
        for origin in (FIRST, SECOND):
            found = await hosts[0].chunks(run_id, name, 0, 100)
            mine = [each.payload for each in found if each.origin == origin]
            assert mine == [f"{origin.attempt}-{n}".encode() for n in range(20)]


@pytest.mark.postgres
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("end", [lose_before_commit, lose_after_commit, SlowCommit(0.4)])
async def test_chunks_whose_commit_lost_its_connection_are_stored_exactly_once(
    emptied_postgres: str, end: object, is_new: bool
) -> None:
    """No journal head shows their outcome; the store waits for a commit that is still ending."""
    store = await PostgresStore.open(emptied_postgres)
    try:
        run_id = (await begun(store)).run_id
        before = [] if is_new else [chunk(run_id, 0)]
        if before:
            await store.commit(appending(*before))
        fail_once(store, end)  # type: ignore[arg-type]
        await store.commit(appending(chunk(run_id, 1), chunk(run_id, 2)))
        if isinstance(end, SlowCommit):
            await end.wait_ended()
        await store.commit(appending(chunk(run_id, 3)))
        assert await payloads(store, run_id) == [b"1-0"] * len(before) + [b"1-1", b"1-2", b"1-3"]
    finally:
        await store.close()


@pytest.mark.usefixtures("tampering")
async def test_an_append_overwrites_no_chunk_if_the_streams_length_was_changed(
    store: Store,
) -> None:
    run_id = (await begun(store)).run_id
    await store.commit(appending(chunk(run_id, 0), chunk(run_id, 1)))
    await raw(store, "UPDATE {}stream SET length = 1")
    before = await contents(store)
    with pytest.raises(BundleRefused):
        await store.commit(appending(chunk(run_id, 2)))
    assert await contents(store) == before


BAD: dict[str, dict[str, object]] = {
    "empty name": {"name": ""},
    "long name": {"name": "n" * (MAX_NAME_LENGTH + 1)},
    "name with NUL": {"name": "a\0b"},
    "half a character": {"name": "\ud800"},
    "strange run": {"run_id": RunId("r_1")},
    "step with NUL": {"origin": ChunkOrigin(StepId("root\0"))},
    "long step": {"origin": ChunkOrigin(StepId("s" * 1025))},
    "attempt": {"origin": ChunkOrigin(StepId("root"), 2**31)},
    "claim": {"origin": ChunkOrigin(StepId("root"), 1, 2**31)},
    "number": {"number": 2**63},
    "time": {"at_ms": 2**63},
    "payload": {"payload": b"x" * (MAX_PAYLOAD_BYTES + 1)},
}


@pytest.mark.parametrize("what", BAD)
async def test_a_chunk_that_can_not_be_stored_is_refused(store: Store, what: str) -> None:
    run_id = (await begun(store)).run_id
    fields: dict[str, object] = {
        "run_id": run_id,
        "name": "tokens",
        "origin": FIRST,
        "number": 0,
        "payload": b"1",
        "at_ms": NOW,
    }
    bundle = Bundle()
    with pytest.raises(InputError) as caught:
        bundle.append_chunk(NewChunk(**(fields | BAD[what])))  # type: ignore[arg-type]
    assert_typed(caught.value, caught.value.code)
    assert isinstance(caught.value, PayloadTooLarge) == (what == "payload")
    assert not bundle.chunks


async def test_a_stream_ends_with_its_run(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    last = together(run.finish(), appending(chunk(run.run_id, 0, ROOT)))
    await asyncio.gather(
        store.commit(appending(chunk(run.run_id, 0))),
        store.commit(last),
        # In one commit with the end: no reader can have read the stream to its end before.
        store.commit(appending(chunk(run.run_id, 1))),
    )
    outcomes = await asyncio.gather(
        store.commit(appending(chunk(run.run_id, 2))),
        store.commit(appending(chunk(other.run_id, 0))),
        store.commit(appending(chunk(run.run_id, 0, name="logs"))),
        store.commit(appending(chunk(some_run_id(), 0))),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [RunEnded, type(None), RunEnded, UnknownRun]
    error = outcomes[0]
    assert isinstance(error, RunEnded)
    assert_typed(error, "run-ended", run.run_id)
    assert await payloads(store, run.run_id) == [b"1-0", b"1-0", b"1-1"]
    assert await store.streams(run.run_id) == {"tokens": 3}
    assert await payloads(store, other.run_id) == [b"1-0"]


@pytest.mark.postgres
async def test_a_run_does_not_end_while_a_chunk_is_being_committed(emptied_postgres: str) -> None:
    """Nor is a chunk committed while the run ends: the second of the two waits for the first."""
    store = await open_store(emptied_postgres)
    run, other = await begun(store), await begun(store)
    holder = await asyncpg.connect(emptied_postgres)
    grow = statements("postgres")["grow_streams"]
    async with holder.transaction():
        await holder.fetch(grow, [run.run_id], ["tokens"], [0], [False])
        await store.commit(run.step())
        ending = asyncio.ensure_future(store.commit(run.finish()))
        await asyncio.sleep(0.2)
        assert not ending.done()
        await store.commit(other.step())
    await ending
    close = statements("postgres")["close_runs"]
    async with holder.transaction():
        await holder.execute(close, [other.run_id], [NOW])
        appended = asyncio.ensure_future(store.commit(appending(chunk(other.run_id, 0))))
        await asyncio.sleep(0.2)
        assert not appended.done()
    with pytest.raises(RunEnded):
        await appended
    await holder.close()
    await store.close()
