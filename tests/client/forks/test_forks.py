import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

import perdure
from perdure import Engine, InputError, PerdureError, Retry, Signal, load_graph, task, workflow
from perdure.authoring.graphs.program import GraphProgram
from perdure.client.runs import forks
from perdure.core.errors import Denied, ForkDiverged, UnknownStep
from perdure.core.journal import events as e
from perdure.core.runs import forking
from perdure.core.runs.acts import Actor
from perdure.core.runs.authority import Roles
from perdure.testing import simulated
from tests.client.engines import journal, opened, store_of, until_store
from tests.client.forks.forking import forked
from tests.engine.workflow.programs import PROGRAMS

calls: Counter[str] = Counter()
go = Signal("fork.go", int)


@task(name="fork_priced")
async def priced(item: str) -> int:
    calls[f"priced {item}"] += 1
    return len(item)


@task(name="fork_charged")
async def charged(total: int) -> str:
    calls["charged"] += 1
    return f"charged {total}"


@workflow(name="fork_order")
async def order(items: list[str]) -> str:
    prices = await perdure.gather(*(priced(item) for item in items))
    receipt = await charged(sum(prices))
    return f"{receipt} {perdure.info().key}"


@task(name="fork_fragile", retry=Retry(attempts=1))
async def fragile(n: int) -> int:
    if calls["fixed"] == 0:
        raise LookupError("not fixed yet")
    return n


@workflow(name="fork_breaks")
async def breaks(n: int) -> int:
    return await fragile(n) + 1


@workflow(name="fork_asks")
async def asks(n: int) -> int:
    first = await priced("one")
    return first + n + await go.receive()


SPREAD = """
graph: priced_order
input: {items: list}
activities:
  each: {spread: items, item: item}
  price: {worker: fork_priced, input: {item: item}, output: {price: result}}
  all: {aggregate: each, collect: price, into: prices}
  charge: {worker: fork_charged, input: {total: sum(prices)}, output: {receipt: result}}
  done: {output: receipt}
transitions:
  - each -> price -> all -> charge -> done
"""


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()


async def test_a_fork_executes_its_step_again_and_keeps_what_else_was_done() -> None:
    async with forked(order(["a", "bb", "ccc"])) as found:
        before = Counter(calls)
        fork = await found.run.fork("root.1")
        assert (await found.ending(fork)).startswith("completed")
        assert calls - before == Counter({"priced bb": 1, "charged": 1})


async def test_the_count_of_executions_finds_a_fork_that_runs_finished_work_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A seeded bug: the fork carries no outcomes over."""
    monkeypatch.setattr(forking, "later_outcomes", lambda *_: {})
    async with forked(order(["a", "bb", "ccc"])) as found:
        before = Counter(calls)
        fork = await found.run.fork("root.1")
        assert (await found.ending(fork)).startswith("completed")
        assert calls - before > Counter({"priced bb": 1, "charged": 1})


async def test_a_preview_says_what_a_fork_would_do_and_stores_nothing() -> None:
    async with forked(order(["a", "bb", "ccc"])) as found:
        preview = await found.run.preview_fork("root.1")
        assert [step.step for step in preview.repeated] == ["root.1"]
        assert [step.step for step in preview.kept] == ["root.2"]
        assert preview.entries == 9  # the first call had ended before
        assert preview.doubted == ()
        assert len(await all_runs(found.engine)) == 1


async def test_a_fork_with_another_outcome_ends_as_if_the_task_had_returned_it() -> None:
    async with forked(order(["a", "bb"])) as found:
        fork = await found.run.fork("root.0", set={"root.0": 100})
        assert await fork.result() == "charged 102 None"
        assert calls["priced a"] == 1
        diff = await found.engine.diff(found.run.run_id, fork.run_id)
        changed = {step.step: step.change.value for step in diff.changes}
        assert changed == {"root.0": "status differs", "root.2": "input differs"}


async def test_a_step_may_be_named_by_the_task_that_it_calls() -> None:
    async with forked(order(["a", "bb"])) as found:
        fork = await found.run.fork("fork_charged", set={"fork_charged": "gift"})
        assert await fork.result() == "gift None"
        with pytest.raises(UnknownStep, match="2 steps that call 'fork_priced'"):
            await found.run.fork("fork_priced")
        with pytest.raises(UnknownStep, match="has no step 'shipped'"):
            await found.run.fork("shipped")


async def test_a_fork_at_the_start_may_change_the_input() -> None:
    async with forked(order(["a"])) as found:
        fork = await found.run.fork(input={"items": ["four", "five"]})
        assert await fork.result() == "charged 8 None"
        with pytest.raises(InputError, match="fork at 'root'"):
            await found.run.fork("root.0", input={"items": []})
        with pytest.raises(InputError, match="can't begin with these arguments"):
            await found.run.fork(input={"items": 5})


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"input": {"item": ["a"]}}, "has no argument 'item'.*: name one of its arguments: items"),
        ({"input": ["a"]}, "a fork with input ="),
        ({"set": ["a"]}, "a fork with set ="),
    ],
)
async def test_arguments_that_the_program_does_not_have_make_no_fork(
    wanted: dict[str, Any], text: str
) -> None:
    async with forked(order(["a", "bb"])) as found:
        with pytest.raises(InputError, match=text):
            await found.run.fork(**wanted)
        with pytest.raises(InputError, match=text):
            await found.run.preview_fork(**wanted)
        assert len(await all_runs(found.engine)) == 1


async def test_a_preview_names_the_keys_of_the_fork_that_has_its_id() -> None:
    keys: list[str] = []

    @task(name="fork_keyed")
    async def keyed() -> None:
        keys.append(perdure.key())

    @workflow(name="fork_shows_keys")
    async def shows() -> None:
        await keyed()

    async with forked(shows()) as found:
        preview = await found.run.preview_fork("root.0")
        fork = await found.run.fork("root.0", id=preview.id)
        await fork.result()
        assert preview.fork == fork.run_id
        assert [each.key for each in preview.repeated] == keys[-1:]


async def test_a_fork_needs_the_results_that_it_would_keep() -> None:
    async with forked(order(["a", "bb", "ccc"])) as found:
        entries = [entry async for entry in found.run.events(follow=False)]
        (seq,) = [
            entry.seq
            for entry in entries
            if isinstance(entry.event, e.InvokeCompleted) and entry.event.promise_id == "root.2"
        ]
        await store_of(found.engine).erase_payloads(found.run.run_id, seq, seq + 1)
        with pytest.raises(InputError, match=f"entry {seq} of run .* was erased"):
            await found.run.fork("root.1")
        assert (await found.ending(await found.run.fork())).startswith("completed")


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"root.0": "many"}, "no result of 'fork_priced'"),
        ({"root.2": "x"}, "can't be set"),
        ({"root": 1}, "the start of a run has no result"),
    ],
)
async def test_a_value_that_does_not_fit_makes_no_fork(wanted: dict[str, Any], text: str) -> None:
    async with forked(order(["a", "bb"])) as found:
        with pytest.raises(InputError, match=text):
            await found.run.fork("root.0", set=wanted)
        assert len(await all_runs(found.engine)) == 1


async def test_a_failed_run_continues_in_a_fork_once_its_cause_is_fixed() -> None:
    async with forked(breaks(4)) as found:
        assert await found.ending(found.run) == "failed 'LookupError'"
        calls["fixed"] += 1
        fork = await found.run.fork("fork_fragile")
        assert await fork.result() == 5
        again = await found.run.retry()
        assert await again.result() == 5
        assert await found.ending(found.run) == "failed 'LookupError'"


async def test_forks_of_one_id_are_one_run() -> None:
    async with forked(order(["a"])) as found:
        one = await found.run.fork("root.0", id="ticket-1")
        other = await found.run.fork("root.0", id="ticket-1")
        assert one.run_id == other.run_id
        assert (await found.run.fork("root.0")).run_id != one.run_id


async def test_forks_of_one_id_by_two_hosts_at_once_are_one_run(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, prepare = asyncio.Barrier(2), forks.prepare_fork

    async def prepare_at_once(*args: Any) -> Any:
        prepared = await prepare(*args)
        await both.wait()
        return prepared

    async with opened(shared_url) as engine, opened(shared_url) as other:
        run = await engine.start(breaks(4))
        with pytest.raises(LookupError):
            await run.result()
        monkeypatch.setattr(forks, "prepare_fork", prepare_at_once)
        handles = run, other.handle(run.run_id)
        made = await asyncio.gather(*(each.fork(id="ticket-1") for each in handles))
        assert len({fork.run_id for fork in made}) == 1
        assert len((await engine.runs(forked_from=run.run_id)).runs) == 1


async def test_the_record_of_a_fork_of_an_ended_run_does_not_say_that_it_was_refused() -> None:
    async with Engine("sqlite:///:memory:", authorizer=Roles()) as engine:
        run = await engine.start(order(["a"]))
        await run.result()
        await run.fork(by=Actor("ann", "engineer"))
        with pytest.raises(Denied):
            await run.fork(by=Actor("eve", "viewer"))

        async def reasons() -> list[str | None]:
            states = await store_of(engine).act_messages(run.run_id)
            return [reason for _, state, reason in states if state == "dead"]

        async def are_recorded() -> bool:
            return len(await reasons()) == 2

        await until_store(are_recorded)
        assert sorted(map(str, await reasons())) == [
            "AUTHZ_DENIED: the run is completed",
            "accepted; the run is completed",
        ]


@workflow(name="fork_continues")
async def continues(n: int) -> int:
    await priced("one")
    heard = await go.receive()
    if n < 1:
        await perdure.continue_as_new(continues(n + 1))
    return heard


async def test_forks_of_one_id_are_one_run_when_the_chain_has_continued_in_between() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(continues(0))
        one = await run.fork("fork_priced", id="ticket-1")
        await run.signal(go, 1)

        async def has_continued() -> bool:
            return calls["priced one"] >= 3  # by the first run, by the fork, and by the second run

        await until_store(has_continued)
        other = await run.fork("fork_priced", id="ticket-1")
        assert one.run_id == other.run_id


@task(name="fork_parks", retry=Retry(attempts=1), on_failure="park")
async def parks(n: int) -> int:
    raise LookupError("never")


@workflow(name="fork_skipped")
async def skipped() -> list[int]:
    return [*await perdure.gather(parks(1), priced("bb"))]


async def test_a_fork_keeps_what_an_operator_skipped_later() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(skipped())

        async def is_parked_alone() -> bool:
            ended = [x for x in await journal(engine, run) if isinstance(x, e.InvokeCompleted)]
            return len(ended) == 1 and len((await run.waits()).parked) == 1

        await until_store(is_parked_alone)
        await run.skip_step("root.0", value=30, by=Actor("ann"), id="skip")
        assert await run.result() == [30, 2]
        preview = await run.preview_fork("root.1")
        assert [each.step for each in preview.kept] == ["root.0"]
        fork = await run.fork("root.1")
        assert await fork.result() == [30, 2]
        found = [x for x in await journal(engine, fork) if isinstance(x, e.StepSkipped)]
        assert [(x.promise_id, x.signal_id) for x in found] == [("root.0", "skip")]


async def test_an_open_run_is_forked_and_continues() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(asks(10))
        await run.signal(go, 1)
        assert await run.result() == 14
        waiting = await engine.start(asks(20))
        fork = await waiting.fork("root.0", set={"root.0": 5}, by=Actor("ann", "engineer"), id="f")
        await fork.signal(go, 1)
        assert await fork.result() == 26
        await waiting.signal(go, 2)
        assert await waiting.result() == 25
        decided = [x for x in await journal(engine, waiting) if isinstance(x, e.SignalAccepted)]
        assert [(x.signal_type, x.by, x.signal_id) for x in decided] == [("FORK", "ann", "f")]


async def test_later_signals_are_sent_to_a_fork_unless_they_are_left_out() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(asks(10))
        await run.signal(go, 7)
        assert await run.result() == 20
        fork = await run.fork("root.0")
        assert await fork.result() == 20
        silent = await run.fork("root.0", signals=False)
        await silent.signal(go, 1)
        assert await silent.result() == 14


async def test_a_denied_fork_is_recorded_and_makes_no_run() -> None:
    async with Engine("sqlite:///:memory:", authorizer=Roles()) as engine:
        run = await engine.start(asks(1))
        with pytest.raises(Denied, match="AUTHZ_DENIED"):
            await run.fork(by=Actor("eve", "operator"), id="no")
        await run.signal(go, 1)
        assert await run.result() == 5
        rejected = [x for x in await journal(engine, run) if isinstance(x, e.SignalRejected)]
        assert [(x.signal_id, x.code) for x in rejected] == [("no", "AUTHZ_DENIED")]
        assert len(await all_runs(engine)) == 1


async def test_code_that_does_not_repeat_what_a_fork_keeps_refuses_it() -> None:
    @workflow(name="fork_changes")
    async def before() -> int:
        return await priced("a") + await priced("bb")

    async with forked(before()) as found:

        @workflow(name="fork_changes")
        async def after() -> int:
            return await priced("other") + await priced("bb")

        with pytest.raises(ForkDiverged, match="would not repeat"):
            await found.run.fork("root.1")
        assert len(await all_runs(found.engine)) == 1
        assert await (await found.run.fork()).result() == 7
        assert after.name == before.name


async def test_an_item_of_a_spread_is_executed_again_alone() -> None:
    program = GraphProgram[..., Any](load_graph(SPREAD))
    async with forked(program(items=["a", "bb", "ccc"])) as found:
        before = Counter(calls)
        steps = [step for step in await found.steps() if step.startswith("price")]
        fork = await found.run.fork(steps[1], set={steps[1]: 50})
        assert await fork.result() == "charged 54"
        assert calls - before == Counter({"charged": 1})


async def test_a_fork_is_found_by_its_source_and_by_the_tags_that_it_had() -> None:
    @workflow(name="fork_tagged")
    async def tagged() -> str:
        perdure.tag(stage="begun")
        await priced("a")
        perdure.tag(stage="priced")
        return await charged(1)

    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        run = await engine.start(tagged(), tags={"customer": "acme"})
        await clock.run(run.result())
        fork = await run.fork("fork_charged", set={"fork_charged": "later"})
        await clock.run(fork.result())
        page = await engine.runs(forked_from=run.run_id)
        assert [found.run_id for found in page.runs] == [fork.run_id]
        both = await engine.runs(tags={"customer": "acme", "stage": "priced"})
        assert {found.run_id for found in both.runs} == {run.run_id, fork.run_id}


async def test_no_outcome_can_be_set_where_a_run_is_being_cancelled() -> None:
    program = PROGRAMS["tidies_up"]
    async with forked(program.call(), program.script) as found:
        with pytest.raises(InputError, match="being cancelled"):
            await found.run.fork("root.3", set={"root.3": 1})
        assert len(await all_runs(found.engine)) == 2  # the run and its child


async def test_any_run_of_a_chain_can_be_forked() -> None:
    @workflow(name="fork_chain")
    async def chained(n: int) -> int:
        total = await priced("a" * (n + 1))
        if n < 2:
            return await perdure.continue_as_new(chained(n + total))
        return total

    async with forked(chained(0)) as found:
        first, *_, last = await found.run.runs()
        assert await (await found.run.fork("root.0", set={"root.0": 7})).result() == 7
        begun = await found.run.fork(f"{first}/root.0", set={"root.0": 5})
        assert await begun.result() == 6
        preview = await found.run.preview_fork(f"{last}/root.0")
        assert preview.source == last
        stranger = await found.engine.start(chained(5))
        with pytest.raises(UnknownStep, match="not in the chain"):
            await found.run.fork(f"{stranger.run_id}/root.0")


async def test_signals_that_wait_during_a_pause_go_to_a_fork_too() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(asks(10))
        await (await run.pause()).decision(30)
        await run.signal(go, 3)
        assert (await run.preview_fork("root.0")).signals == ("fork.go",)
        fork = await run.fork("root.0")
        await run.resume()
        assert (await run.result(30), await fork.result(30)) == (16, 16)


async def test_a_fork_on_another_host_survives_its_kill(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(order(["a", "bb"]))
        await run.result()
    front = Engine(shared_url, hosts=False)
    async with front:
        fork = await front.handle(run.run_id).fork("root.0", set={"root.0": 9})
    async with opened(shared_url) as engine:
        assert await engine.handle(fork.run_id).result() == "charged 11 None"


async def all_runs(engine: Engine) -> list[str]:
    report = await engine.audit()
    assert report.is_clean, str(report)
    return [""] * report.runs


def test_errors_of_forks_are_perdures() -> None:
    assert issubclass(ForkDiverged, PerdureError)


async def test_long_journal_is_forked_in_a_thread(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop of the caller has other work than to repeat thousands of steps."""
    threads: list[int] = []

    def watched(work: Any) -> Any:
        def call(*args: Any) -> Any:
            threads.append(threading.get_ident())
            return work(*args)

        return call

    monkeypatch.setattr(forks, "LONG_JOURNAL", 10)
    for name in ("plan_fork", "fork_bundle"):
        monkeypatch.setattr(forks, name, watched(getattr(forks, name)))
    async with opened(engine_url) as engine:
        run = await engine.start(order(["a", "bb", "ccc"]))
        result = await run.result()
        assert await (await run.fork("root.2")).result() == result
        assert len(threads) == 2
        assert threading.get_ident() not in threads
