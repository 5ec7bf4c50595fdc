"""`perdure graph check`: all that is wrong with graphs, with places."""

from perdure import InputError
from perdure.cli.graph.source import FORMS, read_source
from perdure.cli.graph.telling import print_problems, print_refusal
from perdure.core.errors import PerdureError


def check_all(names: tuple[str, ...]) -> int:
    """Print what each holds, or what is wrong with it. The exit code is that of the worst."""
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
        print(f"{source.name}: {graph.name}{version}: {len(graph.nodes)} nodes, all is well")
    return 0
