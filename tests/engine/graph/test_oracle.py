"""Random graphs on the real engine, through crashes, against what the oracle says that they do."""

from collections import Counter
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from perdure.core.graph.checking import problems_of
from perdure.core.graph.model import AnyNode, Graph
from perdure.testing.workflows import MODES
from tests.engine.catching import Record
from tests.engine.graph.oracle import Expected, Oracle, TooLarge
from tests.engine.graph.ordeal import undergo
from tests.engine.graph.random_graphs import PROGRAMS, random_graph, random_input
from tests.engine.workflow.emptied import emptied

SIZES = st.integers(3, 20)
SEEDS = st.integers(0, 2**32)
"""A smaller graph of the same seed is the beginning of the larger one, so that sizes shrink well."""

FAULTS = st.dictionaries(st.integers(0, 60), st.integers(1, 3), max_size=6)
"""At which of fate's decisions something goes wrong, and what."""

FEW = settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
MANY = settings(FEW, max_examples=2_000, derandomize=False)


def expectation(random: Random, size: int) -> tuple[Graph, dict[str, Any], Expected]:
    graph = random_graph(random, size)
    assert problems_of(graph) == []
    arguments = random_input(random)
    try:
        return graph, arguments, Oracle(graph, PROGRAMS).run(arguments)
    except TooLarge:
        reject()


@FEW
@given(SEEDS, SIZES, st.sampled_from(sorted(MODES)), FAULTS)
async def test_engine_does_what_the_oracle_says(
    seed: int, size: int, mode: str, faults: dict[int, int]
) -> None:
    graph, arguments, expected = expectation(Random(seed), size)
    await undergo(graph, arguments, expected, mode, faults)


@pytest.mark.deep
@MANY
@given(SEEDS, st.integers(3, 40), st.sampled_from(sorted(MODES)), FAULTS)
async def test_engine_does_what_the_oracle_says_of_many(
    seed: int, size: int, mode: str, faults: dict[int, int]
) -> None:
    graph, arguments, expected = expectation(Random(seed), size)
    await undergo(graph, arguments, expected, mode, faults)


@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(6))
async def test_engine_does_what_the_oracle_says_on_postgres(
    seed: int, emptied_postgres: str, record_property: Record
) -> None:
    random = Random(seed)
    graph, arguments, expected = expectation(random, 12)
    faults = {random.randint(0, 30): random.randint(1, 3) for _ in range(3)}
    commits = 0
    for mode in MODES:
        store = emptied(emptied_postgres)
        commits += await undergo(graph, arguments, expected, mode, faults, store)
    record_property("explored", f"oracle, graph {seed} on Postgres: {commits} commits")


def test_random_graphs_are_of_all_kinds() -> None:
    """What is not made is not tested: each thing that a graph may do happens in some of these."""
    seen: Counter[str] = Counter()
    for seed in range(200):
        graph, _, expected = expectation(Random(seed), 16)
        seen.update({type(node).__name__ for node in graph.nodes})
        seen["fails"] += bool(expected.failures)
        seen["outputs twice"] += len(expected.outputs) > 1
        seen["skips"] += bool(expected.skipped)
        seen["turns"] += any(step.startswith("cycle") for step in expected.ran)
        seen["leaves a loop that turns"] += expected.leaves_turning
        seen["turns twice at once"] += not expected.is_exact
    kinds = {kind.__name__ for kind in get_args(AnyNode)} - {"SignalNode", "CallNode"}
    wanted = kinds | {"fails", "outputs twice", "skips", "turns", "turns twice at once"}
    assert wanted | {"leaves a loop that turns"} == {name for name, count in seen.items() if count}
