"""The commands of `perdure graph`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from perdure.cli.graph import checking, deploying, drawing
from perdure.cli.graph.reporting import print_refusal
from perdure.cli.store_setting import StoreOption
from perdure.core.errors import PerdureError

SourceArgument = Annotated[
    str, Parameter(help="A YAML file, or module:name of a graph in Python code.")
]


def check_graphs(*sources: SourceArgument) -> int:
    """Print all problems of graphs, with file, line and column.

    The exit code is 1 if a graph has problems, and 2 if a source can't be read.
    """
    return _run(lambda: checking.check_all(sources))


def deploy(source: SourceArgument, /, *, store: StoreOption = None) -> int:
    """Deploy the graphs of a file to a store. Engines on the store can run them once they are activated.

    Versions are immutable: deploying the same graph again changes nothing, and a different graph with the same name
    and version is refused.
    """
    return _run(lambda: asyncio.run(deploying.deploy_source(source, store)))


def activate(name: str, version: str, /, *, store: StoreOption = None) -> int:
    """Select the version that new runs of a graph use. Open runs keep their version."""
    return _run(lambda: asyncio.run(deploying.activate_version(name, version, store)))


def list_graphs(*, store: StoreOption = None) -> int:
    """List all graph versions with their state and number of open runs."""
    return _run(lambda: asyncio.run(deploying.print_deployed(store)))


def draw_graph(
    source: SourceArgument,
    /,
    *,
    as_: Annotated[Literal["text", "mermaid", "svg"], Parameter(name="--as")] = "text",
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
) -> int:
    """Draw a graph.

    Parameters
    ----------
    as_
        The output format.
    output
        The file to write to. Default: standard output.
    """
    return _run(lambda: drawing.draw_one(source, as_, output))


def _run(command: Callable[[], int]) -> int:
    try:
        return command()
    except PerdureError as error:
        return print_refusal(error)
