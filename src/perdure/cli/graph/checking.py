"""`perdure graph check`: prints all problems of graphs, with their source positions."""

from perdure import InputError
from perdure.cli.graph.reporting import print_problems, print_refusal
from perdure.cli.graph.source import FORMS, read_source
from perdure.core.errors import PerdureError


def check_all(names: tuple[str, ...]) -> int:
    """Prints the graphs or the problems of each source. Returns the highest exit code."""
    if not names:
        raise InputError("there is nothing to check", FORMS)
    return max(_check(name) for name in names)


def _check(name: str) -> int:
    try:
        source = read_source(name)
    except PerdureError as error:
        return print_refusal(error)
    if source.problems:
        return print_problems(source)
    for graph in source.graphs:
        version = f" version {graph.version}" if graph.version else ""
        print(f"{source.name}: {graph.name}{version}: {len(graph.nodes)} nodes, no problems")
    return 0
