"""Compiled and interpreted, each program of the corpus does the same as its plain function."""

from typing import Any

import pytest

import perdure
from perdure.core.graph.checking import problems_of
from tests.authoring.graphs.corpus import (
    CASES,
    CODEC,
    DEFINITIONS,
    PROGRAMS,
    Case,
    Outcome,
    expected,
)
from tests.authoring.graphs.interpreter import Failed, World, interpret


def interpreted(case: Case) -> Outcome:
    world = World(DEFINITIONS, case.signals)
    try:
        return Outcome(interpret(case.program.model, case.kwargs, world))
    except Failed as failed:
        return Outcome(None, failed.trouble.type_name, failed.trouble.message)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_graph_does_what_the_function_does(case: Case) -> None:
    assert interpreted(case) == expected(case)


async def run_by_asyncio(case: Case) -> Outcome:
    call = case.program(**case.kwargs)
    try:
        value = await perdure.inline(call, signals=case.signals)
    except Exception as error:  # any error of the program
        kind = type(error)
        return Outcome(None, f"{kind.__module__}:{kind.__qualname__}", str(error))
    return Outcome(CODEC.decode(CODEC.encode(value), object))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_function_does_the_same_in_an_event_loop(case: Case) -> None:
    assert await run_by_asyncio(case) == expected(case)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_graph_of_the_corpus_is_valid(program: Any) -> None:
    assert problems_of(program.model) == []


def test_corpus_is_large() -> None:
    assert len(PROGRAMS) >= 30
