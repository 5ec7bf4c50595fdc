"""`perdure graph check`: all that is wrong with graphs, with places."""

from perdure.cli.graph.source import read_source
from perdure.cli.graph.telling import WRONG, print_problems


def check_all(names: tuple[str, ...]) -> int:
    """Print what each holds, or what is wrong with it."""
    sources = [read_source(name) for name in names]
    for source in sources:
        print_problems(source)
        for graph in source.graphs:
            version = f" version {graph.version}" if graph.version else ""
            print(f"{source.name}: {graph.name}{version}: {len(graph.nodes)} nodes, all is well")
    return WRONG if any(source.problems for source in sources) else 0
