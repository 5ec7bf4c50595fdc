"""`perdure graph check`: all that is wrong with graphs, with places."""

import sys

from perdure.cli.graph.source import Source, read_source

WRONG = 1
"""Exit code if a graph has problems."""


def check_all(names: tuple[str, ...]) -> int:
    """Print what each holds, or what is wrong with it."""
    sources = [read_source(name) for name in names]
    for source in sources:
        print_problems(source)
        for graph in source.graphs:
            version = f" version {graph.version}" if graph.version else ""
            print(f"{source.name}: {graph.name}{version}: {len(graph.nodes)} nodes, all is well")
    return WRONG if any(source.problems for source in sources) else 0


def print_problems(source: Source) -> None:
    for problem in source.problems:
        place = "" if problem.where is not None else f"{source.name}: "
        print(f"{place}{problem}", file=sys.stderr)
