"""Policies of retention, and the messages that are not delivered any more."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure import Engine, Handle, InputError, Retention, Settings, UnknownRun
from perdure.core.ids import message_guid
from perdure.core.messages import AT_ONCE, Message
from perdure.host.runs.retaining import make_pass
from perdure.store.commit.bundle import Bundle
from perdure.testing.probe import Probe
from tests.client.engines import assert_sound, store_of, until, until_store
from tests.client.retention.leaving import looping, note, parent, plain, waiting

DAY_MS = 86_400_000


async def ended(engine: Engine, count: int, scope: str = "") -> list[Handle[str]]:
    """Runs that ended one after the other, the oldest first."""
    runs = []
    for number in range(count):
        run = await engine.start(plain(str(number)), scope=scope)
        await run.result(60)
        runs.append(run)
        now_ms = Probe(engine).now_ms
        await until(lambda then=now_ms: Probe(engine).now_ms > then)  # type: ignore[misc]
    return runs


async def stored(engine: Engine, runs: Sequence[Handle[str]]) -> list[int]:
    """Which of the runs are in the store, by position."""
    there = {run.run_id for run in await store_of(engine).runs([run.run_id for run in runs])}
    return [place for place, run in enumerate(runs) if run.run_id in there]


async def test_the_newest_runs_are_kept_per_program_status_and_scope(shared_url: str) -> None:
    policies = [
        Retention(program="retention.plain", status="completed", scope="a", keep=2, then="purge")
    ]
    async with Engine(shared_url, retention=policies) as engine:
        mine, others = await ended(engine, 5, scope="a"), await ended(engine, 3, scope="b")
        (preview,) = await engine.retention.preview()
        assert (preview.due, preview.done) == (3, 0)
        (done,) = await engine.retention.run()
        assert (done.due, done.done) == (3, 3)
        assert await stored(engine, mine) == [3, 4]
        assert await stored(engine, others) == [0, 1, 2]
        (done,) = await engine.retention.run()
        assert done.due == 0
        await assert_sound(engine)


async def test_old_runs_are_archived_then_erased_then_purged(
    shared_url: str, tmp_path: Path
) -> None:
    policies = [
        Retention(after=3 * 86400, then="purge"),
        Retention(after=2 * 86400, then="erase"),
        Retention(after=86400, then="archive"),
    ]
    folder = tmp_path / "archive"
    async with Engine(shared_url, archive=str(folder), retention=policies) as engine:
        runs = await ended(engine, 2)
        looped = await engine.start(looping(2, "x"))
        await looped.result(60)
        sources = Probe(engine).host.dispatcher.sources
        real = sources.now_ms
        found = []
        for days in range(4):
            sources.now_ms = lambda days=days: real() + days * DAY_MS + 1000 * (days > 0)  # type: ignore[method-assign, misc]
            found.append([each.done for each in await engine.retention.run()])
            kept = await engine.retention.get(runs[0].run_id)
            state = kept and (kept.is_archived, kept.receipt is not None, kept.purged is not None)
            assert (
                state
                == (
                    None,
                    (True, False, False),
                    (True, True, False),
                    (False, True, True),
                )[days]
            )
        assert found == [[0, 0, 0], [0, 0, 5], [0, 3, 0], [5, 0, 0]]  # the chain is erased at once
        assert not [each for each in folder.rglob("*") if each.is_file()]
        assert not await store_of(engine).retention.unfinished(10)
        sources.now_ms = real  # type: ignore[method-assign]
        await assert_sound(engine)


async def test_due_runs_with_open_relatives_stay_for_a_later_pass(shared_url: str) -> None:
    policies = [Retention(after=0, then="purge")]
    async with Engine(shared_url, retention=policies) as engine:
        above = await engine.start(parent("x"))
        source = await engine.start(waiting("x"))
        await source.signal(note, "y")
        await source.result(60)
        fork = await source.fork("root.0", signals=False)
        (done,) = await engine.retention.run()
        assert (done.due, done.done) == (1, 0)
        await fork.signal(note, "y")
        await fork.result(60)
        (child,) = [each.run_id async for each in engine.iterate_runs(parent=above.run_id)]
        await engine.handle(child).signal(note, "go")
        await above.result(60)
        (done,) = await engine.retention.run()
        assert (done.due, done.done) == (4, 4)
        await assert_sound(engine)


async def test_hosts_apply_policies_and_delete_messages_in_the_background(shared_url: str) -> None:
    settings = Settings(retention_every=0.05, keep_messages=0)
    policies = [Retention(status="completed", after=0, then="purge")]
    async with Engine(shared_url, settings=settings, retention=policies) as engine:
        runs = await ended(engine, 3)

        async def are_gone() -> bool:
            return not await stored(engine, runs)

        await until_store(are_gone)


async def test_messages_that_are_not_delivered_any_more_are_deleted(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(waiting("x"))
        await run.signal(note, "first")
        await run.result(60)
        store, host = store_of(engine), Probe(engine).host
        sources = host.dispatcher.sources
        late = message_guid(run.run_id, "late")
        bundle = Bundle()
        bundle.enqueue(Message(run.run_id, late, "signal:late", AT_ONCE, sources.now_ms()))
        await store.commit(bundle)
        act = await run.pause()
        assert not (await act.decision(60)).accepted

        async def kinds() -> list[str]:
            found = await store.messages(run.run_id)
            return sorted(each.kind for each, state, _ in found if state != "pending")

        async def are_aside() -> bool:
            host.poller.deliver_soon()
            return await kinds() == ["act:PAUSE", "signal:late"]

        await until_store(are_aside)
        await make_pass(host.context)
        assert await kinds() == ["act:PAUSE", "signal:late"]
        real = sources.now_ms
        sources.now_ms = lambda: real() + 8 * DAY_MS  # type: ignore[method-assign]
        await make_pass(host.context)
        assert await kinds() == ["act:PAUSE"]  # the record of what was decided
        sources.now_ms = real  # type: ignore[method-assign]
        assert await engine.retention.purge([run.run_id])
        assert not await kinds()


async def test_pending_messages_are_never_swept(shared_url: str) -> None:
    async with Engine(shared_url, hosts=False) as engine:
        run = await engine.start(waiting("x"))
        await run.signal(note, "first")
        store = store_of(engine)
        before = await store.messages(run.run_id)
        assert before
        assert not await store.retention.sweep_messages(1 << 50, 100)
        assert await store.messages(run.run_id) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"then": "burn", "after": 1},
        {"then": "purge"},
        {"then": "purge", "after": -1},
        {"then": "purge", "keep": -1},
        {"then": "purge", "keep": True},
        {"then": "purge", "keep": 1, "status": "running"},
        {"then": "purge", "keep": 1, "program": 3},
    ],
)
def test_wrong_policies_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Retention(**wrong)  # type: ignore[arg-type]


def test_an_engine_refuses_what_is_no_list_of_policies() -> None:
    with pytest.raises(InputError, match="list of perdure"):
        Engine("sqlite:///x.db", retention=Retention(keep=1, then="purge"))  # type: ignore[arg-type]


async def test_a_fork_of_a_run_that_is_erased_meanwhile_is_refused(shared_url: str) -> None:
    """The fork has read the journal before the erasure, and commits after it."""
    async with Engine(shared_url) as engine:
        run = await engine.start(plain("data"))
        await run.result(60)
        store = store_of(engine)
        real, refused = store.commit, []

        async def commit(bundle: Bundle) -> None:
            store.commit = real
            assert bundle.created
            await engine.retention.erase(run.run_id)
            try:
                await real(bundle)
            except Exception as error:
                refused.append(type(error).__name__)
                raise

        store.commit = commit
        with pytest.raises(InputError, match="erased"):
            await run.fork()
        assert refused == ["StaleFence"]
        assert not [each async for each in engine.iterate_runs(forked_from=run.run_id)]
        await assert_sound(engine)


async def test_a_fork_of_a_run_that_is_purged_meanwhile_is_refused(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(plain("data"))
        await run.result(60)
        store = store_of(engine)
        real = store.commit

        async def commit(bundle: Bundle) -> None:
            store.commit = real
            await engine.retention.purge([run.run_id])
            await real(bundle)

        store.commit = commit
        with pytest.raises(UnknownRun):
            await run.fork()
        assert not [each async for each in engine.iterate_runs(forked_from=run.run_id)]
        await assert_sound(engine)
