"""The graphs that a command was given: those in a YAML file, or one in the user's code."""

from pathlib import Path
from traceback import walk_tb
from typing import NamedTuple

import msgspec

from perdure import GraphInvalid, GraphProgram, InputError
from perdure.authoring.graphs.yaml import read_graphs
from perdure.cli.importing import import_named, kind_of
from perdure.client.graphs import checked
from perdure.core.graph.model import Graph, Place, Problem

_SUFFIXES = (".yaml", ".yml")
FORMS = "pass a YAML file, or a module and a graph in it: 'orders.graphs:order'"


class Source(NamedTuple):
    """What was found: the graphs, or all that is wrong."""

    name: str
    graphs: list[Graph]
    problems: list[Problem]


def read_source(name: str) -> Source:
    """The graphs that a file or `module:attribute` holds, checked. Raises `InputError` if it is neither."""
    try:
        graphs = _written(name)
        return Source(name, [checked(graph, graphs) for graph in graphs], [])
    except GraphInvalid as error:
        return Source(name, [], _placed(error))


def one_graph(name: str) -> Source:
    """The same, of something that holds one graph."""
    source = read_source(name)
    if not source.problems and len(source.graphs) != 1:
        raise InputError(f"{name} holds {len(source.graphs)} graphs", "pass a file with one")
    return source


def _placed(error: GraphInvalid) -> list[Problem]:
    """What is wrong. If the user's code raised it, that is the place of what has none."""
    frames = walk_tb(error.__traceback__)
    raised = [
        Place(frame.f_code.co_filename, line, 1)
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
    raise InputError(f"{name!r} names no graph", FORMS)


def _in_file(path: Path) -> list[Graph]:
    try:
        found = read_graphs(path)
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror})", FORMS) from None
    if not found:
        raise InputError(f"{path} holds no graph", "write one")
    return found


def _in_code(target: str, module_name: str, attribute: str) -> Graph:
    module = import_named(module_name, "run the command")
    try:
        found: object = getattr(module, attribute)
    except AttributeError:
        raise InputError(f"module {module_name!r} has no {attribute!r}", FORMS) from None
    model = found.model if isinstance(found, GraphProgram) else found
    if not isinstance(model, Graph):
        raise InputError(f"{target} is {kind_of(found)}", "name a graph")
    return model
