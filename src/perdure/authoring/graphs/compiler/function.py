"""A function as a graph."""

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

from perdure.authoring.graphs.compiler.dicts import refuse_fields_of_dicts
from perdure.authoring.graphs.compiler.drawing import Drawing
from perdure.authoring.graphs.compiler.expressions import Expressions
from perdure.authoring.graphs.compiler.flow import Flow
from perdure.authoring.graphs.compiler.iterators import refuse_iterators
from perdure.authoring.graphs.compiler.judging import Judge
from perdure.authoring.graphs.compiler.names import Names
from perdure.authoring.graphs.compiler.parameters import Parameters
from perdure.authoring.graphs.compiler.planes import Planes
from perdure.authoring.graphs.compiler.problems import Problems
from perdure.authoring.graphs.compiler.source import tree_of
from perdure.authoring.graphs.compiler.statements import compile_block, finish
from perdure.authoring.graphs.compiler.unit import Unit
from perdure.core.graph import model as m

_CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def compile_function(fn: Callable[..., Any], *, name: str, version: str) -> m.Graph:
    """The graph that does what the function does. `CannotCompile` names every line that stands against it."""
    function = cast(FunctionType, fn)
    tree = tree_of(function)
    problems = Problems(function.__code__.co_filename)
    names = Names(function, tree)
    parameters = Parameters(function, tree, problems)
    drawing = Drawing()
    expressions = Expressions(names, problems)
    unit = Unit(drawing, names, problems, expressions, _mutable(tree))
    refuse_iterators(tree, names, problems)
    refuse_fields_of_dicts(tree, problems)
    drawing.at = tree
    drawing.places.update(parameters.places)
    drawing.add(m.Trigger(name=drawing.name("start")), can_fail=False)
    renamed = parameters.renamed(names)
    if renamed:
        drawing.assign(renamed, "arguments")
    compile_block(unit, tree.body)
    if drawing.open:
        finish(unit, ast.copy_location(ast.Constant(None), tree))
    planes = Planes({node.name: node for node in drawing.nodes}, list(drawing.edges))
    planes.separate(names)
    flow = Flow(planes, drawing, parameters.names)
    flow.report_unset(names, problems)
    flow.close_loops(names, problems)
    graph = m.Graph(
        name=name,
        version=version,
        nodes=tuple(planes.nodes.values()),
        edges=tuple(planes.edges),
        input=parameters.fields,
        source=f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}",
    )
    Judge(graph, drawing.places, tree).report(problems)
    problems.require_none(name)
    return graph


def _mutable(tree: ast.AsyncFunctionDef) -> frozenset[str]:
    """Variables that are a list or a dict somewhere, as far as the source tells."""
    found = set()
    for each in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs):
        if each.annotation is not None and _names_container(each.annotation):
            found.add(each.arg)
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.value, _CONTAINERS):
            found |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Assign) and isinstance(node.value, _CONTAINERS):
            found |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if _names_container(node.annotation) or isinstance(node.value, _CONTAINERS):
                found.add(node.target.id)
    return frozenset(found)


def _names_container(annotation: ast.expr) -> bool:
    text = ast.unparse(annotation).strip("'\"").lower()
    return text.partition("[")[0] in {"list", "dict", "set"}
