"""The nodes and edges of compiled functions."""

from typing import Any

import msgspec
import pytest

from perdure import CannotCompile, gather, task
from perdure.authoring.graphs.compiler.function import compile_function
from perdure.authoring.graphs.decorator import graph
from perdure.core.graph import model as m
from tests.authoring.graphs import corpus
from tests.authoring.graphs.corpus_tasks import (
    Order,
    TooMuch,
    corpus_add,
    corpus_double,
    corpus_fail,
    corpus_order,
)


def compiled(fn: Any) -> m.Graph:
    return compile_function(fn, name="compiled", version="1")


def kinds(model: m.Graph) -> list[str]:
    return [type(node).__name__.removesuffix("Node") for node in model.nodes]


def of_kind(model: m.Graph, kind: type[Any]) -> list[Any]:
    return [node for node in model.nodes if isinstance(node, kind)]


def test_parameters_are_fields_of_the_input() -> None:
    async def fn(
        a: int, b: list[str], c: Any, d: float = 1.5, e: int | None = None, *, f: str = "x"
    ) -> Any:
        return [a, b, c, d, e, f]

    model = compiled(fn)
    assert model.input == {
        "a": m.FieldType("int"),
        "b": m.FieldType("list"),
        "c": m.FieldType("any"),
        "d": m.FieldType("float", required=False, default=1.5),
        "e": m.FieldType("any", required=False, default=None),
        "f": m.FieldType("str", required=False, default="x"),
    }
    assert (model.name, model.version) == ("compiled", "1")
    assert model.source.startswith(f"{__file__}:")


def test_straight_code_compiles_to_few_nodes() -> None:
    async def fn(a: int) -> Any:
        b = a + 1
        c = b * 2
        d = await corpus_double(c)
        if d:
            return d
        return None

    model = compiled(fn)
    assert kinds(model) == ["Trigger", "Assign", "Worker", "Branch", "Output", "Output"]
    (worker,) = of_kind(model, m.WorkerNode)
    assert (worker.task, worker.input, worker.output) == (
        "corpus_double",
        {"x": "c"},
        {"d": "result"},
    )


def test_outer_constants_are_read_at_compile_time() -> None:
    limit = 7

    @task
    async def compiling_local(x: int) -> int:
        return x

    async def fn(a: int) -> Any:
        return await compiling_local(a + limit)

    (worker,) = of_kind(compiled(fn), m.WorkerNode)
    assert worker.input == {"x": "a + 7"}


def test_cycle_passes_on_only_variables_that_the_loop_sets() -> None:
    async def fn(n: int, step: int) -> Any:
        total, kept = 0, step * 2
        while total < n:
            other = await corpus_add(total, kept)
            total = other
        return total

    (cycle,) = of_kind(compiled(fn), m.CycleNode)
    assert cycle.input == {"total": "total"}


def test_a_loop_that_other_paths_bypass_returns_to_the_start_of_the_graph() -> None:
    async def alone(n: int) -> Any:
        while n < 9:
            n = await corpus_double(n)
        return n

    async def joined(n: int) -> Any:
        if n:
            while n < 9:
                n = await corpus_double(n)
        return n

    assert kinds(compiled(alone))[:3] == ["Trigger", "Hook", "Branch"]
    model = compiled(joined)
    assert kinds(model)[:4] == ["Trigger", "Assign", "Hook", "Branch"]
    (cycle,) = of_kind(model, m.CycleNode)
    assert cycle.input == {"turn": "1", "n": "n"}


def test_a_loop_that_never_repeats_gets_no_hook() -> None:
    async def fn(n: int) -> Any:
        while n < 9:
            return n
        return 0

    assert not {"Hook", "Cycle"} & set(kinds(compiled(fn)))


def test_gathered_calls_are_parallel_nodes() -> None:
    async def fn(a: int) -> Any:
        return await gather(corpus_double(a), corpus_double(a + 1))

    model = compiled(fn)
    begun = [edge.target for edge in model.edges if edge.source == "arguments"]
    assert begun == ["corpus_double", "corpus_double_2"]


def test_raised_errors_have_type_name_and_bases() -> None:
    async def fn(a: int) -> Any:
        raise TooMuch(f"{a}")

    (error,) = of_kind(compiled(fn), m.RaiseNode)
    module = TooMuch.__module__
    assert (error.error, error.bases) == (f"{module}:TooMuch", (f"{module}:Refused",))


def test_a_graph_without_loops_is_called_and_one_with_loops_is_awaited() -> None:
    steps, looped = corpus.corpus_steps, corpus.corpus_while

    async def fn(a: int) -> Any:
        b = await steps(a)
        return await looped(b)

    assert kinds(compiled(fn)) == ["Trigger", "Call", "Await", "Output"]
    assert "Call" not in kinds(graph(name="compiling_calls")(fn).model)


@task
async def compiling_takes(
    anything: Any, either: int | str, order: Order, later: "DefinedLater | None" = None
) -> None: ...


class DefinedLater(msgspec.Struct):
    name: str


def test_arguments_that_may_fit_are_passed() -> None:
    async def fn(n: str, untyped, either: int | str) -> Any:  # type: ignore[no-untyped-def]
        order = await corpus_order(3)
        await compiling_takes(n, n, order)
        raw: Any = {"name": n, "total": untyped}
        await compiling_takes([n], either, raw, raw)
        x: Any = n
        try:
            x = int(n)
            return [x]
        except ValueError:
            await corpus_fail(x)
        for _ in range(2):
            x = 1 if untyped else n
            await corpus_double(x)
            x = n
        return await corpus_double(order.total + untyped)

    assert len(of_kind(compiled(fn), m.WorkerNode)) == 6


def test_a_task_may_name_types_that_are_defined_later() -> None:
    @task
    async def compiling_early(later: "NotYet") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    async def fn(a: int) -> Any:
        await compiling_early(a)

    assert len(of_kind(compiled(fn), m.WorkerNode)) == 1


def test_comments_do_not_change_the_digest() -> None:
    async def fn(a: int) -> Any:
        return a + 1

    first = graph(name="compiling_digest")(fn)

    async def fn(a: int) -> Any:  # type: ignore[no-redef]
        # the same again
        return a + 1

    assert graph(name="compiling_digest")(fn).digest == first.digest


def test_all_problems_of_a_line_are_reported() -> None:
    async def fn(a: int) -> Any:
        return [{a}, {a, 1}, await corpus_double(b=a)]  # type: ignore[call-arg]

    with pytest.raises(CannotCompile) as caught:
        compiled(fn)
    columns = [problem.where.column for problem in caught.value.problems if problem.where]
    assert columns == [17, 22, 36]
