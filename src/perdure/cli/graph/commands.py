"""The commands of `perdure graph`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from perdure.cli.graph import checking, deploying, drawing
from perdure.cli.graph.telling import print_refusal
from perdure.core.errors import PerdureError

Source = Annotated[str, Parameter(help="A YAML file, or module:name of a graph in Python code.")]
Url = Annotated[
    str,
    Parameter(
        name="--store", help="The URL of the store: 'sqlite:///orders.db', 'postgresql://...'."
    ),
]


def check(*sources: Source) -> int:
    """Check graphs, and print all that is wrong, with file, line and column.

    The exit code is 1 if anything is wrong with a graph, and 2 if one can't be read.
    """
    return _run(lambda: checking.check_all(sources))


def deploy(source: Source, /, *, store: Url) -> int:
    """Deploy the graphs of a file: every engine on the store can run them, once they are activated.

    A version never changes: the same again is no harm, and another graph under its name and version is refused.
    """
    return _run(lambda: asyncio.run(deploying.deploy_all(source, store)))


def activate(name: str, version: str, /, *, store: Url) -> int:
    """Let new runs of a graph be of this version. Runs that are under way stay on theirs."""
    return _run(lambda: asyncio.run(deploying.activate_one(name, version, store)))


def list_graphs(*, store: Url) -> int:
    """List the versions of all graphs, their state, and how many runs of each are open."""
    return _run(lambda: asyncio.run(deploying.list_all(store)))


def draw(
    source: Source,
    /,
    *,
    as_: Annotated[Literal["text", "mermaid", "svg"], Parameter(name="--as")] = "text",
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
) -> int:
    """Draw a graph.

    Parameters
    ----------
    as_
        The form of the picture.
    output
        The file to write it to. Without it the picture is printed.
    """
    return _run(lambda: drawing.draw_one(source, as_, output))


def _run(command: Callable[[], int]) -> int:
    try:
        return command()
    except PerdureError as error:
        return print_refusal(error)
