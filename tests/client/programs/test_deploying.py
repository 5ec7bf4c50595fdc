"""Graphs that are deployed to a store: versions, activation, and runs that are started by name."""

from hashlib import sha256

import msgspec
import pytest

from perdure import (
    DeploymentState,
    Engine,
    GraphInvalid,
    GraphProgram,
    InputError,
    KeyReused,
    NotActive,
    UnknownVersion,
    VersionExists,
)
from perdure.core.errors import UnknownName
from perdure.core.graph import model as m
from perdure.store.rows.records import NewProgram
from tests.client.engines import opened, store_of
from tests.client.programs.deployable import adding, graph, quick, until_waiting


async def states(engine: Engine) -> dict[str, tuple[str, int]]:
    return {each.version: (each.state.value, each.open_runs) for each in await engine.graphs()}


async def run_count(engine: Engine) -> int:
    return len([books async for books in store_of(engine).books()])


async def test_a_deployed_graph_is_started_by_its_name(engine: Engine) -> None:
    deployed = await engine.deploy(quick("order"))
    assert (deployed.name, deployed.version, deployed.state) == ("order", "1", "deployed")
    activated = await engine.activate("order", "1")
    assert activated.state is DeploymentState.ACTIVE
    assert activated.digest == deployed.digest
    run = await engine.start_graph("order", {"x": 1})
    assert await run.result(60) == 2
    stored = await store_of(engine).run(run.run_id)
    assert (stored.program, stored.version, stored.digest) == ("order", "1", deployed.digest)


async def test_none_is_active_until_it_is_activated(engine: Engine) -> None:
    await engine.deploy(quick("order"))
    with pytest.raises(
        NotActive, match=r"no version of graph 'order' is active \(deployed: '1'\)"
    ) as caught:
        await engine.start_graph("order", {"x": 1})
    assert "activate('order', '1')" in caught.value.remedy
    assert await run_count(engine) == 0
    # It can be tried out.
    tried = await engine.start_graph("order", {"x": 1}, version="1")
    assert await tried.result(60) == 2


async def test_runs_stay_on_their_version_whatever_is_activated(engine: Engine) -> None:
    for version, by in (("1", 1), ("2", 100)):
        await engine.deploy(adding("order", version, by))
    await engine.activate("order", "1")
    first = await engine.start_graph("order", {"x": 1, "k": "a"})
    await until_waiting(first)
    await engine.activate("order", "2")
    second = await engine.start_graph("order", {"x": 1, "k": "b"})
    assert await states(engine) == {"1": ("draining", 1), "2": ("active", 1)}
    for key in "ab":
        await engine.send("go", key)
    assert [await first.result(60), await second.result(60)] == [2, 101]
    assert await states(engine) == {"1": ("retired", 0), "2": ("active", 0)}


async def test_a_version_that_was_active_is_started_again_once_it_is_active(engine: Engine) -> None:
    for version, by in (("1", 1), ("2", 100)):
        await engine.deploy(quick("order", version, by))
        await engine.activate("order", version)
    with pytest.raises(
        NotActive, match="version '1' of graph 'order' was active, and version '2' is now"
    ):
        await engine.start_graph("order", {"x": 1}, version="1")
    assert await run_count(engine) == 0
    await engine.activate("order", "1")
    assert await (await engine.start_graph("order", {"x": 1})).result(60) == 2
    assert await (await engine.start_graph("order", {"x": 1}, version="1")).result(60) == 2


async def test_deploying_the_same_again_changes_nothing(engine: Engine) -> None:
    first = await engine.deploy(quick("order"))
    await engine.activate("order", "1")
    again = await engine.deploy(GraphProgram(quick("order"), is_registered=False))
    assert (again.digest, again.deployed_at_ms) == (first.digest, first.deployed_at_ms)
    assert again.state is DeploymentState.ACTIVE


async def test_deployed_graph_sets_variables_in_the_order_of_its_text(engine: Engine) -> None:
    later = m.AssignNode(name="later", set={"z": "x + 1", "y": "z * 10"}, job={"b": "z", "a": "y"})
    await engine.deploy(
        graph("order", later, m.OutputNode(name="out", value="y"), edges="start later out", x="int")
    )
    run = await engine.start_graph("order", {"x": 1}, version="1")
    assert await run.result(60) == 20


def test_the_order_of_other_entries_is_no_difference() -> None:
    one, other = ({"a": "x", "b": "1"}, {"b": "1", "a": "x"})
    digests = {
        GraphProgram(
            graph(
                "order",
                m.WorkerNode(name="total", task="deployable.add", input=entries),
                edges="start total",
                **fields,
            ),
            is_registered=False,
        ).digest
        for entries in (one, other)
        for fields in ({"x": "int", "k": "str"}, {"k": "str", "x": "int"})
    }
    assert len(digests) == 1


def spelled(by: str, value: str, when: str, version: str = "1") -> m.Graph:
    """The sum of `x` and `by`, with expressions as they are written."""
    written = graph(
        "order",
        m.WorkerNode(name="total", task="deployable.add", input={"a": "x", "b": by}),
        m.AssignNode(name="next", set={"z": value, "y": "z"}),
        m.OutputNode(name="out", value="y"),
        edges="start total next out",
        version=version,
        x="int",
    )
    first, *edges = written.edges
    return msgspec.structs.replace(
        written, edges=(first, m.Edge("total", "next", when=when), *edges[1:])
    )


async def test_another_spelling_is_the_same_graph(engine: Engine) -> None:
    first = await engine.deploy(spelled("x+1", "total", "x>0"))
    again = await engine.deploy(spelled("x   +  (1)", " (total)", "(x > 0)"))
    assert again == first
    run = await engine.start_graph("order", {"x": 1}, version="1")
    assert await run.result(60) == 3


@pytest.mark.parametrize(
    "other", [("x+2", "total", "x>0"), ("x+1", "x", "x>0"), ("x+1", "total", "x>=0")]
)
async def test_another_expression_is_another_graph(
    engine: Engine, other: tuple[str, str, str]
) -> None:
    await engine.deploy(spelled("x+1", "total", "x>0"))
    with pytest.raises(VersionExists):
        await engine.deploy(spelled(*other))


async def test_stored_graph_with_unknown_fields_differs_from_the_given_one(engine: Engine) -> None:
    content = GraphProgram(quick("order"), is_registered=False).content
    newer = (content.replace(b"{", b'{"from_tomorrow":true,', 1), b"[]")
    for version, stored in enumerate(newer):
        digest = sha256(stored).hexdigest()
        program = NewProgram("order", f"{version}", digest, stored.decode())
        await store_of(engine).deploy_programs([program], 0)
        with pytest.raises(VersionExists):
            await engine.deploy(quick("order", version=f"{version}"))


async def test_another_order_of_assignments_is_another_graph(engine: Engine) -> None:
    one, other = (
        graph("order", m.AssignNode(name="both", set=entries), edges="start both", x="int")
        for entries in ({"a": "x", "b": "2"}, {"b": "2", "a": "x"})
    )
    await engine.deploy(one)
    with pytest.raises(VersionExists):
        await engine.deploy(other)


async def test_a_version_never_changes(engine: Engine) -> None:
    await engine.deploy(quick("order"))
    before = await engine.graphs()
    with pytest.raises(VersionExists, match="version '1' of program 'order' was deployed"):
        await engine.deploy(quick("order", by=2))
    assert await engine.graphs() == before
    await engine.activate("order", "1")
    assert await (await engine.start_graph("order", {"x": 1})).result(60) == 2


async def test_invalid_graph_reports_all_problems_and_is_not_deployed(engine: Engine) -> None:
    wrong = graph(
        "order",
        m.WorkerNode(name="total", task="deployable.add", input={"a": "y", "c": "1"}),
        m.OutputNode(name="out", value="summ"),
        edges="start total out",
        x="int",
    )
    with pytest.raises(GraphInvalid) as caught:
        await engine.deploy(wrong)
    reported = str(caught.value)
    assert "'y'" in reported or "`y`" in reported
    assert "summ" in reported
    assert len(caught.value.problems) >= 3
    assert await engine.graphs() == []


@pytest.mark.parametrize("given", [None, "order", {"nodes": []}, object()])
async def test_deploying_something_else_than_a_graph_is_refused(
    engine_url: str, given: object
) -> None:
    async with opened(engine_url) as engine:
        with pytest.raises(InputError, match="is not a graph"):
            await engine.deploy(given)  # type: ignore[arg-type]


async def test_a_graph_without_a_version_is_not_deployed(engine: Engine) -> None:
    with pytest.raises(InputError, match="graph 'order' has no version"):
        await engine.deploy(quick("order", version=""))
    assert await engine.graphs() == []


async def test_what_was_not_deployed_is_neither_activated_nor_started(engine: Engine) -> None:
    with pytest.raises(UnknownVersion):
        await engine.activate("order", "1")
    with pytest.raises(UnknownName, match="no graph 'order' is deployed"):
        await engine.start_graph("order", {})
    await engine.deploy(quick("order"))
    with pytest.raises(UnknownVersion, match="has no version '2'"):
        await engine.start_graph("order", {"x": 1}, version="2")
    for name, version in (("", "1"), ("order", ""), (7, "1"), ("order", None)):
        with pytest.raises(InputError):
            await engine.activate(name, version)  # type: ignore[arg-type]
    assert await run_count(engine) == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "'x' is missing"),
        ({"x": "1"}, "'x' is '1', and has to be of type int"),
        ({"x": True}, "'x' is True"),
        ({"x": None}, "'x' is None"),
        ({"x": 1, "y": 2}, "there is no field 'y'"),
        ([1], "pass a dict"),
        ({1: 1}, "pass a dict"),
    ],
)
async def test_input_that_does_not_fit_is_refused_before_anything_is_written(
    engine_url: str, given: object, said: str
) -> None:
    async with opened(engine_url) as engine:
        await engine.deploy(quick("order"))
        await engine.activate("order", "1")
        with pytest.raises(InputError) as caught:
            await engine.start_graph("order", given)  # type: ignore[arg-type]
        assert said in str(caught.value)
        assert await run_count(engine) == 0


async def test_a_key_is_one_run_whatever_is_activated(engine: Engine) -> None:
    for version, by in (("1", 1), ("2", 100)):
        await engine.deploy(quick("order", version, by))
    await engine.activate("order", "1")
    first = await engine.start_graph("order", {"x": 1}, key="k")
    await engine.activate("order", "2")
    again = await engine.start_graph("order", {"x": 1}, key="k")
    assert again.run_id == first.run_id
    assert await again.result(60) == 2
    with pytest.raises(KeyReused, match="of graph 'order'"):
        await engine.start_graph("order", {"x": 2}, key="k")


async def test_graphs_start_with_a_transaction_or_not_at_all(engine: Engine) -> None:
    await engine.deploy(quick("order"))
    await engine.activate("order", "1")
    async with engine.transaction():
        run = await engine.start_graph("order", {"x": 1})
        with pytest.raises(InputError, match="inside a transaction"):
            await engine.deploy(quick("order", "2"))
        with pytest.raises(InputError, match="inside a transaction"):
            await engine.activate("order", "1")
    assert await run.result(60) == 2

    async def rolled_back() -> None:
        async with engine.transaction():
            await engine.start_graph("order", {"x": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await rolled_back()
    assert await run_count(engine) == 1
