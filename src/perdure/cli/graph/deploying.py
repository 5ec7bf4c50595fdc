"""`perdure graph deploy`, `activate` and `list`: the graphs in a store. They open no engine and advance no run."""

from rich.console import Console
from rich.table import Table

from perdure.cli.graph.reporting import print_problems
from perdure.cli.graph.source import read_source
from perdure.cli.store_setting import existing_store
from perdure.client.deployments import (
    DeploymentState,
    GraphVersion,
    activate_graph,
    deploy_graphs,
    graph_versions,
)
from perdure.host.clock import HostSources


async def deploy_source(name: str, url: str | None) -> int:
    """Deploys all graphs of a source, or none of them."""
    source = read_source(name)
    if source.problems:
        return print_problems(source)
    async with existing_store(url) as store:
        for deployed in await deploy_graphs(store, source.graphs, HostSources().now_ms()):
            print(_described(deployed))
    return 0


async def activate_version(name: str, version: str, url: str | None) -> int:
    async with existing_store(url) as store:
        print(_described(await activate_graph(store, name, version)))
    return 0


async def print_deployed(url: str | None) -> int:
    async with existing_store(url) as store:
        found = await graph_versions(store)
        if not found:
            print(f"no graphs are deployed to {store.name}")
            return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("graph", "version", "state", "open runs", "digest"):
        table.add_column(column, justify="right" if column == "open runs" else "left")
    for each in found:
        row = each.name, each.version, each.state.value, f"{each.open_runs:,}", each.digest[:12]
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)
    return 0


def _described(graph: GraphVersion) -> str:
    text = f"{graph.name} version {graph.version}: {graph.state.value}"
    if graph.state is not DeploymentState.DEPLOYED:
        return text
    command = f"perdure graph activate {graph.name} {graph.version} --store URL"
    return f"{text}; activate it with: {command}"
