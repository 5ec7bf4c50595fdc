"""What names of asyncio mean in a graph: `asyncio.gather` and `asyncio.sleep` are Perdure's."""

import asyncio
from collections.abc import Awaitable, Callable
from types import CellType, FunctionType, SimpleNamespace
from typing import Any, Final

from perdure.authoring import concurrency, verbs


async def _gather(*awaitables: Awaitable[Any]) -> list[Any]:
    return list(await concurrency.gather(*awaitables))


async def _sleep(delay: float) -> None:
    await verbs.sleep(delay)


_MEANT: Final[dict[int, Any]] = {
    id(asyncio): SimpleNamespace(gather=_gather, sleep=_sleep),
    id(asyncio.gather): _gather,
    id(asyncio.sleep): _sleep,
}


class _Globals(dict[str, Any]):
    """The globals of a function, where the names of asyncio mean what they mean in a graph."""

    def __init__(self, original: dict[str, Any]) -> None:
        super().__init__()
        self._original = original

    def __missing__(self, name: str) -> Any:
        value = self._original[name]
        return _MEANT.get(id(value), value)


def as_graph_means(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a graph, to be run as plain Python."""
    if not isinstance(function, FunctionType):
        return function
    cells = function.__closure__ or ()
    made = FunctionType(
        function.__code__,
        _Globals(function.__globals__),
        function.__name__,
        function.__defaults__,
        tuple(map(_meant_cell, cells)),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _meant_cell(cell: CellType) -> CellType:
    try:
        value = cell.cell_contents
    except ValueError:  # not assigned yet
        return cell
    return CellType(_MEANT[id(value)]) if id(value) in _MEANT else cell
