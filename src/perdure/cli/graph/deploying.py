"""`perdure graph deploy`, `activate` and `list`: what a store holds. No engine is opened, and no run is taken up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console
from rich.table import Table

from perdure.cli.graph.source import read_source
from perdure.cli.graph.telling import print_problems
from perdure.client import graphs
from perdure.client.graphs import DeploymentState, GraphVersion
from perdure.host.clock import HostSources
from perdure.store.opening import open_store
from perdure.store.store import Store


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """A store that exists: a mistyped URL makes none."""
    store = await open_store(url, as_it_is=True)
    try:
        yield store
    finally:
        await store.close()


async def deploy_all(name: str, url: str) -> int:
    """Deploy the graphs that a file holds, all or none of them."""
    source = read_source(name)
    if source.problems:
        return print_problems(source)
    async with opened(url) as store:
        for deployed in await graphs.deploy(store, source.graphs, HostSources().now_ms()):
            print(_told(deployed))
    return 0


async def activate_one(name: str, version: str, url: str) -> int:
    async with opened(url) as store:
        print(_told(await graphs.activate(store, name, version)))
    return 0


async def list_all(url: str) -> int:
    async with opened(url) as store:
        found = await graphs.graphs(store)
        if not found:
            print(f"no graphs are deployed in {store.name}")
            return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("graph", "version", "state", "open runs", "digest"):
        table.add_column(column, justify="right" if column == "open runs" else "left")
    for each in found:
        row = each.name, each.version, each.state.value, f"{each.open_runs:,}", each.digest[:12]
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)
    return 0


def _told(graph: GraphVersion) -> str:
    told = f"{graph.name} version {graph.version}: {graph.state.value}"
    if graph.state is not DeploymentState.DEPLOYED:
        return told
    return f"{told}; activate it: perdure graph activate {graph.name} {graph.version} --store URL"
