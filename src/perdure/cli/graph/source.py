"""Loads the graphs that a command names: those in a YAML file, or one in user code."""

from pathlib import Path
from traceback import walk_tb
from typing import NamedTuple

import msgspec

from perdure import GraphInvalid, GraphProgram, InputError
from perdure.authoring.graphs.yaml import read_graphs
from perdure.cli.importing import import_named, type_for_people
from perdure.client.deployments import check_and_expand
from perdure.core.graph.model import Graph, Problem, SourceLocation

_SUFFIXES = (".yaml", ".yml")
FORMS = "pass a YAML file, or a module and a graph in it: 'orders.graphs:order'"


class GraphSource(NamedTuple):
    """The graphs of a source, or all their problems."""

    name: str
    graphs: list[Graph]
    problems: list[Problem]


def read_source(name: str) -> GraphSource:
    """Loads and checks the graphs of a file or `module:attribute`. Raises `InputError` if the name is neither."""
    try:
        graphs = _written(name)
        return GraphSource(name, [check_and_expand(graph, graphs) for graph in graphs], [])
    except GraphInvalid as error:
        return GraphSource(name, [], _placed(error))


def one_graph(name: str) -> GraphSource:
    """Like `read_source`, for a source with exactly one graph."""
    source = read_source(name)
    if not source.problems and len(source.graphs) != 1:
        raise InputError(
            f"{name} contains {len(source.graphs)} graphs", "pass a file that contains one graph"
        )
    return source


def _placed(error: GraphInvalid) -> list[Problem]:
    """The problems. One without a position gets the line of user code that raised the error."""
    frames = walk_tb(error.__traceback__)
    raised = [
        SourceLocation(frame.f_code.co_filename, line, 1)
        for frame, line in frames
        if frame.f_globals.get("__name__", "").partition(".")[0] != "perdure"
    ]
    where = raised[-1] if raised else None
    return [
        msgspec.structs.replace(problem, where=problem.where or where) for problem in error.problems
    ]


def _written(name: str) -> list[Graph]:
    module, _, attribute = name.partition(":")
    if name.endswith(_SUFFIXES) or Path(name).is_file():
        return _in_file(Path(name))
    if module and attribute.isidentifier():
        return [_in_code(name, module, attribute)]
    raise InputError(f"{name!r} is not the name of a graph", FORMS)


def _in_file(path: Path) -> list[Graph]:
    try:
        found = read_graphs(path)
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror})", FORMS) from None
    if not found:
        raise InputError(f"{path} contains no graph", "add a graph to the file")
    return found


def _in_code(target: str, module_name: str, attribute: str) -> Graph:
    module = import_named(module_name, "run the command")
    try:
        found: object = getattr(module, attribute)
    except AttributeError:
        raise InputError(f"module {module_name!r} has no {attribute!r}", FORMS) from None
    model = found.model if isinstance(found, GraphProgram) else found
    if not isinstance(model, Graph):
        raise InputError(f"{target} is {type_for_people(found)}", "pass the name of a graph")
    return model
