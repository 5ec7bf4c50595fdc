"""`@graph`: a plain async function whose source is compiled to a graph."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from perdure.authoring.definition import require_name
from perdure.authoring.graphs.compiler.function import compile_function
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.limits import Limit
from perdure.authoring.texts import require_user_text
from perdure.core.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


class GraphDecorator(Protocol):
    """`@graph(...)` with options."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> GraphProgram[P, R]: ...


@overload
def graph(fn: Callable[P, Coroutine[Any, Any, R]], /) -> GraphProgram[P, R]: ...
@overload
def graph(
    *, name: str | None = None, version: str = "", limit: Limit | None = None
) -> GraphDecorator: ...
def graph(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str = "",
    limit: Limit | None = None,
) -> Any:
    """Make an async function a graph: `@graph`, or `@graph(name=..., version=..., limit=...)`.

    Compiles the source at once. `CannotCompile` lists all lines that can't be compiled, and what to write instead.
    """

    def made(function: Callable[..., Any]) -> GraphProgram[..., Any]:
        if not inspect.isfunction(function):
            raise InputError(f"{function!r} is not a function", "put @graph on a plain function")
        called = require_name("graph", function.__name__ if name is None else name)
        numbered = require_user_text("a version", version, least=0)
        model = compile_function(function, name=called, version=numbered)
        return GraphProgram(model, function, limit=limit)

    return made if fn is None else made(fn)
