"""Parameters: declared by a program, given at the start, changed by operators while the run is open."""

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import perdure
from perdure import (
    Actor,
    Decision,
    Denied,
    Engine,
    GraphProgram,
    Handle,
    InputError,
    KeyReused,
    Roles,
    Signal,
    SyncEngine,
    load_graph,
    task,
    workflow,
)
from perdure.core.journal import events as e
from tests.client.engines import ALWAYS_REPLAY, opened, recorded, until_recorded

WAIT = timedelta(seconds=60)

step = Signal("params.step", str)


@dataclass
class Tuning:
    batch: int = 10
    rate: Decimal = Decimal("0.5")
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.batch < 0:
            raise ValueError("batch is negative")


class Limits(msgspec.Struct):
    most: int = 3


@task(name="params.echo")
async def echo(value: Any) -> Any:
    return value


@workflow(name="params.tuned", params=Tuning)
async def tuned(turns: int) -> list[str]:
    """What it reads after each signal."""
    seen = []
    for _ in range(turns):
        await step.receive()
        now = perdure.params(Tuning)
        await echo(now.batch)
        now.batch = -1  # nothing else sees what the program does with its copy
        again = perdure.params(Tuning)
        seen.append(f"{again.batch} {again.rate} {again.tags}")
    return seen


@workflow(name="params.continued", params=Tuning)
async def continued(turn: int) -> list[int]:
    await step.receive()
    batch = perdure.params(Tuning).batch
    if turn < 2:
        return await perdure.continue_as_new(continued(turn + 1))
    return [batch]


@workflow(name="params.parent")
async def parent() -> list[str]:
    return await tuned(0).with_params({"batch": 4})


@workflow(name="params.child", params=Limits)
async def child() -> int:
    return perdure.params(Limits).most


@workflow(name="params.with_child")
async def with_child() -> list[int]:
    return [await child(), await child().with_params({"most": 9})]


@workflow(name="params.none")
async def plain() -> str:
    return await step.receive()


@workflow(name="params.wrong", params=Tuning)
async def wrong() -> int:
    return perdure.params(Limits).most


GRAPH = GraphProgram(
    load_graph("""
graph: params_graph
version: "1"
input: {n: int}
params: {factor: {type: int, default: 2}, label: {type: str, default: low}}
activities:
  first: {hook: params.go}
  scaled: {worker: params.echo, input: {value: n * params.factor}}
  second: {hook: params.go}
  done: {output: "{'scaled': scaled, 'factor': params.factor, 'label': params.label}"}
transitions:
  - first -> scaled -> second -> done
""")
)
go = Signal("params.go", str)


async def update(run: Handle[Any], values: dict[str, Any], **how: Any) -> Decision:
    return await (await run.update_params(values, "tune", **how)).decision(WAIT)


@pytest.mark.parametrize("settings", [None, ALWAYS_REPLAY], ids=["warm", "replayed"])
async def test_new_values_hold_from_the_act_on(engine_url: str, settings: Any) -> None:
    async with opened(engine_url, settings) as engine:
        run = await engine.start(tuned(3).with_params({"rate": Decimal("0.25")}))
        await run.signal(step, "a")
        await until_recorded(engine, run, e.InvokeCompleted)
        decided = await update(run, {"batch": 50, "tags": ["x"]})
        assert decided.accepted
        await run.signal(step, "b")
        await until_recorded(engine, run, e.InvokeCompleted, 2)
        assert (await update(run, {"batch": 7})).accepted
        await run.signal(step, "c")
        assert await run.result() == ["10 0.25 []", "50 0.25 ['x']", "7 0.25 ['x']"]
        accepted = await recorded(engine, run, e.SignalAccepted)
        assert [each.signal_type for each in accepted] == ["UPDATE_PARAMS"] * 2
        events = [each async for each in run.history() if each.type == "SignalAccepted"]
        assert events[0].data["value"] == {"batch": 50, "tags": ["x"]}
        assert events[0].data["reason"] == "tune"


async def test_pending_run_shows_its_first_values(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(tuned(0).with_params({"batch": 3}), approval=True)
        assert (await run.params())["batch"] == 3
        await run.approve()
        await run.result()
        assert (await run.params())["batch"] == 3


async def test_erased_values_are_not_shown_as_defaults(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(tuned(0).with_params({"batch": 3}))
        await run.result()
        await engine.retention.erase(run.run_id, by="desk", reason="case 1")
        with pytest.raises(InputError, match="were erased"):
            await run.params()


async def test_paused_run_takes_new_values(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(tuned(1))
        await (await run.pause()).decision(WAIT)
        await run.signal(step, "a")
        assert (await update(run, {"batch": 3})).accepted
        await run.resume()
        assert await run.result() == ["3 0.5 []"]


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"batsh": 1}, "did you mean 'batch'"),
        ({"batch": "many"}, "'batch' is 'many'"),
        ({"batch": None}, "'batch' is None"),
        ({}, "pass a dict"),
        (["batch"], "pass a dict"),
    ],
)
async def test_sender_refuses_what_the_program_does_not_declare(
    engine_url: str, values: Any, what: str
) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(tuned(0))
        with pytest.raises(InputError, match=what):
            await run.update_params(values, "tune")
        with pytest.raises(InputError):
            _ = tuned(1).with_params(values or {"no": 1})
        assert not await recorded(engine, run, e.SignalRejected)


async def test_owner_refuses_what_the_program_does_not_declare(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender does not have the program."""
    async with opened(engine_url) as engine:
        tuning, graph = await engine.start(tuned(1)), await engine.start(GRAPH(n=1))
        nothing = await engine.start(plain())

        async def unchecked(dispatcher: Any, run: Any, values: object) -> bytes:
            return bytes(dispatcher.codec.encode(values))

        monkeypatch.setattr("perdure.client.runs.acts.encoded_parameters", unchecked)
        for run, values, code in (
            (tuning, {"batsh": 1}, "PARAM_UNKNOWN"),
            (tuning, {"batch": "many"}, "PARAM_MISFIT"),
            (tuning, {"batch": -5}, "PARAM_MISFIT"),  # the class refuses it
            (tuning, [1], "PARAM_MISFIT"),
            (graph, {"factor": "2"}, "PARAM_MISFIT"),
            (graph, {"faktor": 2}, "PARAM_UNKNOWN"),
            (nothing, {"batch": 1}, "PARAMS_NOT_DECLARED"),
        ):
            decided = await update(run, values)  # type: ignore[arg-type]
            assert (decided.accepted, decided.code) == (False, code), values
        await tuning.signal(step, "a")
        assert await tuning.result() == ["10 0.5 []"]
        await nothing.signal(step, "a")
        for name in ("a", "b"):
            await graph.signal(go, name)
        assert await graph.result() == {"scaled": 2, "factor": 2, "label": "low"}


async def test_program_without_parameters_refuses_them_at_the_sender(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(plain())
        with pytest.raises(InputError, match="declares no parameters"):
            await run.update_params({"batch": 1}, "tune")
        with pytest.raises(InputError, match="declares none"):
            _ = plain().with_params({"batch": 1})
        await run.signal(step, "a")
        await run.result()


async def test_same_id_is_one_update_and_other_values_are_refused(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(tuned(1))
        for _ in range(2):
            assert (await update(run, {"batch": 50}, id="one")).accepted
        refused = await update(run, {"batch": 51}, id="one")
        assert (refused.accepted, refused.code) == (False, "ID_TAKEN")
        await run.signal(step, "a")
        assert await run.result() == ["50 0.5 []"]
        assert len(await recorded(engine, run, e.SignalAccepted)) == 1


async def test_only_an_admin_with_a_reason_may_change_them(engine_url: str) -> None:
    async with Engine(engine_url, authorizer=Roles()) as engine:
        run = await engine.start(tuned(1))
        for actor, reason, code in (
            (Actor("eve", "engineer"), "tune", "AUTHZ_DENIED"),
            (Actor("ada", "admin"), "", "AUTHZ_REASON_REQUIRED"),
        ):
            with pytest.raises(Denied) as denied:
                await run.update_params({"batch": 1}, reason, by=actor)
            assert denied.value.reason_code == code
        done = await run.update_params({"batch": 2}, "tune", by=Actor("ada", "admin"))
        assert (await done.decision(WAIT)).accepted
        await run.signal(step, "a")
        assert await run.result() == ["2 0.5 []"]


async def test_continued_run_keeps_them(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(continued(0).with_params({"rate": Decimal(3)}))
        assert (await update(run, {"batch": 77})).accepted
        for _ in range(3):
            await run.signal(step, "a")
        assert await run.result() == [77]


async def test_fork_keeps_what_its_entries_say(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(tuned(2).with_params({"tags": ["first"]}))
        await run.signal(step, "a")
        await until_recorded(engine, run, e.InvokeCompleted)
        assert (await update(run, {"batch": 50})).accepted
        await run.signal(step, "b")
        assert await run.result() == ["10 0.5 ['first']", "50 0.5 ['first']"]
        again = await run.fork("root.3")
        assert await again.result() == await run.result()
        fresh = await run.retry()
        assert await fresh.result() == ["10 0.5 ['first']"] * 2
        other = await run.fork(input={"turns": 1})
        assert await other.result() == ["10 0.5 ['first']"]


async def test_child_runs_have_parameters_of_their_own(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        assert await (await engine.start(with_child())).result() == [3, 9]
        assert await (await engine.start(parent())).result() == []


async def test_start_key_holds_for_one_set_of_values(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(tuned(0).with_params({"batch": 4}), key="k")
        same = await engine.start(tuned(0).with_params({"batch": 4}), key="k")
        assert same.run_id == run.run_id
        with pytest.raises(KeyReused):
            await engine.start(tuned(0), key="k")


@pytest.mark.parametrize("settings", [None, ALWAYS_REPLAY], ids=["warm", "replayed"])
async def test_graph_reads_its_parameters(engine_url: str, settings: Any) -> None:
    async with opened(engine_url, settings) as engine:
        run = await engine.start(GRAPH(n=5).with_params({"label": "high"}))
        assert (await update(run, {"factor": 3})).accepted
        await run.signal(go, "a")
        await until_recorded(engine, run, e.InvokeCompleted)
        assert (await update(run, {"factor": 4})).accepted
        await run.signal(go, "b")
        assert await run.result() == {"scaled": 15, "factor": 4, "label": "high"}
        fork = await run.fork(signals=False)
        for name in ("a", "b"):
            await fork.signal(go, name)
        assert await fork.result() == {"scaled": 10, "factor": 2, "label": "high"}


async def test_deployed_graph_gets_first_values_with_its_input(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        deployed = await engine.deploy(GRAPH)
        await engine.activate(deployed.name, deployed.version)
        run = await engine.start_graph("params_graph", {"n": 1, "params": {"factor": 9}})
        for name in ("a", "b"):
            await run.signal(go, name)
        assert await run.result() == {"scaled": 9, "factor": 9, "label": "low"}
        with pytest.raises(InputError, match="faktor"):
            await engine.start_graph("params_graph", {"n": 1, "params": {"faktor": 9}})


async def test_reading_undeclared_parameters_fails_the_run(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(wrong())
        with pytest.raises(Exception, match="declares no such parameters"):
            await run.result()


def test_sync_handle_changes_parameters(engine_url: str) -> None:
    with SyncEngine(engine_url) as engine:
        run = engine.start(tuned(1))
        assert run.update_params({"batch": 12}, "tune").decision(WAIT).accepted
        run.signal(step, "a")
        assert run.result() == ["12 0.5 []"]


def test_declarations_that_can_not_serve_are_refused() -> None:
    @dataclass
    class Without:
        batch: int

    class Plain:
        pass

    for declared, what in (
        (Without, "give every field of Without a default"),
        (Plain, "declare them as a dataclass"),
        (3, "declare them as a dataclass"),
    ):
        with pytest.raises(InputError, match=what):
            workflow(name="params.refused", params=declared)(_nothing)  # type: ignore[arg-type]


async def _nothing() -> None: ...
