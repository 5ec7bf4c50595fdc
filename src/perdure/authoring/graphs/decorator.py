"""`@graph`: a plain async function whose source is compiled to a graph."""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar, overload

from perdure.authoring.definition import require_name
from perdure.authoring.graphs.compiler.function import compile_function
from perdure.authoring.signature import Signature
from perdure.authoring.texts import require_text
from perdure.core.errors import InputError
from perdure.core.graph.model import Graph

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class CompiledFunction:
    """A graph, and the plain function that it was made of."""

    fn: Callable[..., Coroutine[Any, Any, Any]]
    model: Graph
    signature: Signature = field(init=False)

    def __post_init__(self) -> None:
        self.signature = Signature(self.fn)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def version(self) -> str:
        return self.model.version

    def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        return self.fn(*args, **kwargs)


def make_program(fn: Callable[..., Any], model: Graph) -> CompiledFunction:
    """The program of a compiled function."""
    return CompiledFunction(fn, model)


@overload
def graph(fn: Callable[P, Coroutine[Any, Any, R]], /) -> CompiledFunction: ...
@overload
def graph(
    *, name: str | None = None, version: str = ""
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], CompiledFunction]: ...
def graph(
    fn: Callable[..., Any] | None = None, /, *, name: str | None = None, version: str = ""
) -> Any:
    """Make an async function a graph: `@graph`, or `@graph(name=..., version=...)`.

    Its source is compiled now; what can't be compiled is refused, all of it at once, with what to write instead.
    """

    def made(function: Callable[..., Any]) -> CompiledFunction:
        if not inspect.isfunction(function):
            raise InputError(f"{function!r} is not a function", "put @graph on a plain function")
        called = require_name("graph", function.__name__ if name is None else name)
        numbered = require_text("a version", version, least=0)
        return make_program(function, compile_function(function, name=called, version=numbered))

    return made if fn is None else made(fn)
