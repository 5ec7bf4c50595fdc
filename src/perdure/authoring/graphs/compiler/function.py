"""Compiles a function to a graph."""

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

from perdure.authoring.graphs.compiler.changes import own_containers
from perdure.authoring.graphs.compiler.checking import CompiledGraphCheck
from perdure.authoring.graphs.compiler.dicts import refuse_fields_of_dicts
from perdure.authoring.graphs.compiler.expressions import ExpressionCompiler
from perdure.authoring.graphs.compiler.flow import Flow
from perdure.authoring.graphs.compiler.graph_writer import GraphWriter
from perdure.authoring.graphs.compiler.iterators import refuse_iterators
from perdure.authoring.graphs.compiler.loop_planes import Planes
from perdure.authoring.graphs.compiler.names import Names
from perdure.authoring.graphs.compiler.parameters import Parameters
from perdure.authoring.graphs.compiler.problems import Problems
from perdure.authoring.graphs.compiler.source import function_tree
from perdure.authoring.graphs.compiler.statements import compile_block, finish
from perdure.authoring.graphs.compiler.unit import Unit
from perdure.core.graph import model as m

_CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def compile_function(fn: Callable[..., Any], *, name: str, version: str) -> m.Graph:
    """The graph that does what the function does. `CannotCompile` lists every line that can't be compiled."""
    function = cast(FunctionType, fn)
    tree = function_tree(function)
    problems = Problems(function.__code__.co_filename)
    names = Names(function, tree)
    parameters = Parameters(function, tree, problems)
    writer = GraphWriter()
    expressions = ExpressionCompiler(names, problems)
    unit = Unit(writer, names, problems, expressions, _mutable(tree), own_containers(tree))
    refuse_iterators(tree, names, problems)
    refuse_fields_of_dicts(tree, problems)
    writer.at = tree
    writer.places.update(parameters.places)
    writer.add(m.TriggerNode(name=writer.name("start")), can_fail=False)
    renamed = parameters.renamed(names)
    if renamed:
        writer.assign(renamed, "arguments")
    compile_block(unit, tree.body)
    if writer.open:
        finish(unit, ast.copy_location(ast.Constant(None), tree))
    planes = Planes({node.name: node for node in writer.nodes}, list(writer.edges))
    planes.separate(names)
    flow = Flow(planes, writer, parameters.names)
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
    CompiledGraphCheck(graph, writer.places, tree).report(problems)
    problems.require_none(name)
    return graph


def _mutable(tree: ast.AsyncFunctionDef) -> frozenset[str]:
    """Variables that evidently hold a list, dict or set somewhere in the function."""
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
