"""Refusals of the compiler name the line, the code, and the remedy."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from perdure import InputError
from perdure.authoring.graphs.compiler.function import compile_function
from perdure.authoring.graphs.decorator import graph
from perdure.core.errors import CannotCompile
from perdure.core.graph.model import SourceLocation
from tests.authoring.graphs import refused
from tests.authoring.graphs.corpus_tasks import corpus_double

FUNCTIONS = [
    function
    for name, function in vars(refused).items()
    if inspect.isfunction(function) and function.__module__ == refused.__name__
    if "#!" in inspect.getsource(function)
]


def said_by_comments(function: Any) -> list[tuple[int, str]]:
    lines, first = inspect.getsourcelines(function)
    marked = [(first + number, line.partition("  #! ")[2]) for number, line in enumerate(lines)]
    return [(line, said.strip()) for line, said in marked if said]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_line_is_refused_with_a_remedy(function: Any) -> None:
    with pytest.raises(CannotCompile) as caught:
        compile_function(function, name="refused", version="")
    reported = [
        (problem.where.line, f"{problem.what}; {problem.remedy}")
        for problem in caught.value.problems
        if problem.where is not None
    ]
    assert reported == said_by_comments(function)


def test_error_names_the_file_and_all_places() -> None:
    with pytest.raises(CannotCompile) as caught:
        graph(refused.plain_call)
    text = str(caught.value)
    assert text.startswith("graph 'plain_call' can't be compiled: change these lines\n  ")
    assert text.count(f"{refused.__file__}:") == 2


@graph(name="refusals_whole")
async def whole(n: int) -> int:
    return n


async def passes_text() -> int:
    return await whole("text")  # type: ignore[arg-type]


def test_problem_of_a_call_has_its_position() -> None:
    with pytest.raises(CannotCompile) as caught:
        graph(passes_text)
    (problem,) = caught.value.problems
    assert problem.what == "'text' is of type str, and 'n' of the graph 'refusals_whole' is int"
    assert problem.where == SourceLocation(__file__, passes_text.__code__.co_firstlineno + 1, 24)
    assert str(caught.value).startswith("graph 'passes_text' can't be compiled: ")


TOO_LONG = "\n".join(["async def long(x: int):", *["    x = await corpus_double(x)"] * 600])


def test_too_long_path_is_reported_where_it_exceeds_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "too_long.py"
    file.write_text(TOO_LONG)
    names: dict[str, Any] = {"corpus_double": corpus_double}
    exec(compile(TOO_LONG, file, "exec"), names)
    with pytest.raises(CannotCompile) as caught:
        graph(names["long"])
    (problem,) = caught.value.problems
    assert "the id of its step may take 1,025 bytes, of 1,024" in problem.what
    assert problem.remedy == "await some of it in a loop, or in a workflow"
    assert problem.where is not None
    assert f"this is step {problem.where.line} on its path" in problem.what


def plain(x: int) -> int:
    return x


def test_function_must_be_async() -> None:
    with pytest.raises(InputError, match="plain is not async: write `async def plain"):
        graph(plain)  # type: ignore[arg-type]


def test_generators_are_refused() -> None:
    with pytest.raises(InputError, match="yielded is a generator: return the values as a list"):
        graph(refused.yielded)


def test_only_functions_are_compiled() -> None:
    with pytest.raises(InputError, match="is not a function: put @graph on a plain function"):
        graph(len)  # type: ignore[arg-type]


def test_function_needs_source() -> None:
    names: dict[str, Any] = {}
    exec("async def sourceless(x): return x", names)
    with pytest.raises(InputError, match="the source of sourceless can't be read"):
        graph(names["sourceless"])
