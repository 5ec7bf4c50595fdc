"""`@graph`: a plain async function whose source is compiled to a graph."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import msgspec

from perdure.authoring.definition import require_name
from perdure.authoring.graphs.compiler.function import compile_function
from perdure.authoring.graphs.compiler.problems import cannot_compile
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.texts import require_text
from perdure.core.errors import GraphInvalid, InputError
from perdure.core.graph.model import Graph, Place

P = ParamSpec("P")
R = TypeVar("R")


class GraphDecorator(Protocol):
    """`@graph(...)` with options."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> GraphProgram[P, R]: ...


def make_program(fn: Callable[..., Any], model: Graph) -> GraphProgram[..., Any]:
    """The program of a compiled function: with the graphs that it calls in place of the calls.

    What is wrong with the graph is told at the beginning of the function.
    """
    try:
        return GraphProgram(model, fn)
    except GraphInvalid as error:
        place = Place(fn.__code__.co_filename, fn.__code__.co_firstlineno, 1)
        found = (msgspec.structs.replace(each, where=place) for each in error.problems)
        raise cannot_compile(model.name, found) from None


@overload
def graph(fn: Callable[P, Coroutine[Any, Any, R]], /) -> GraphProgram[P, R]: ...
@overload
def graph(*, name: str | None = None, version: str = "") -> GraphDecorator: ...
def graph(
    fn: Callable[..., Any] | None = None, /, *, name: str | None = None, version: str = ""
) -> Any:
    """Make an async function a graph: `@graph`, or `@graph(name=..., version=...)`.

    Its source is compiled now. What can't be compiled is refused, all of it at once, with what to write instead.
    """

    def made(function: Callable[..., Any]) -> GraphProgram[..., Any]:
        if not inspect.isfunction(function):
            raise InputError(f"{function!r} is not a function", "put @graph on a plain function")
        called = require_name("graph", function.__name__ if name is None else name)
        numbered = require_text("a version", version, least=0)
        return make_program(function, compile_function(function, name=called, version=numbered))

    return made if fn is None else made(fn)
