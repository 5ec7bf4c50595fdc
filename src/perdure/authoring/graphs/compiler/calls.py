"""Resolves calls of tasks, workflows and graphs, and their arguments."""

import ast
from typing import Any, NamedTuple

from perdure.authoring.graphs.compiler.names import MISSING
from perdure.authoring.graphs.compiler.unit import Unit
from perdure.authoring.task import Task
from perdure.authoring.workflow import Workflow
from perdure.core.graph import model as m
from perdure.core.graph.fields import opens_planes
from perdure.core.graph.placing import may_end_without_result, repeats

INSTEAD = "await calls of tasks, workflows and graphs, `perdure.gather`, `perdure.sleep`, or a signal's `receive`"


class ResolvedCall(NamedTuple):
    """A called definition, and the expressions of its arguments by name."""

    definition: Any
    arguments: dict[str, ast.expr]

    @property
    def name(self) -> str:
        return str(self.definition.name)

    @property
    def fields(self) -> dict[str, ast.expr]:
        """The arguments, by field of the node."""
        return {f"input.{name}": value for name, value in self.arguments.items()}

    def node(self, name: str, given: m.Maps, output: m.Maps, *, is_handled: bool) -> m.AnyNode:
        """The node for the call. A graph is expanded in place if possible, else it is a child run.

        `is_handled` says whether a `try` encloses the call.
        """
        if isinstance(self.definition, Task | Workflow):
            return self.node_apart(name, given, output)
        if not _fits_in_place(self.definition.model, is_handled=is_handled):
            return self.node_apart(name, given, output)
        return m.CallNode(name=name, graph=self.name, input=given, output=output)

    def node_apart(self, name: str, given: m.Maps, output: m.Maps) -> m.AnyNode:
        """The node for a parallel call, where a graph is always a child run."""
        if isinstance(self.definition, Task):
            return m.WorkerNode(name=name, task=self.name, input=given, output=output)
        return m.AwaitNode(name=name, program=self.name, input=given, output=output)


def _fits_in_place(graph: m.Graph, *, is_handled: bool) -> bool:
    """Whether the graph can be expanded in place: it opens no planes, which the caller could not join or handle."""
    if any(opens_planes(node) or isinstance(node, m.CallNode) for node in graph.nodes):
        return False
    return not (is_handled and repeats(graph)) and not may_end_without_result(graph)


def is_callable_here(target: object) -> bool:
    """Whether a call of the target is a step."""
    return isinstance(target, Task | Workflow) or isinstance(
        getattr(target, "model", None), m.Graph
    )


def resolve_call(unit: Unit, node: ast.expr) -> ResolvedCall | None:
    """The call of a task, workflow or graph; adds a problem if `node` is none."""
    if not isinstance(node, ast.Call):
        unit.problems.add(node, f"an await of `{ast.unparse(node)}`", INSTEAD)
        return None
    target = unit.names.find(node.func)
    if not is_callable_here(target):
        unit.problems.add(node, *_no_step(unit, node, target))
        return None
    arguments = _arguments(unit, node, target)
    return None if arguments is None else ResolvedCall(target, arguments)


def _no_step(unit: Unit, node: ast.Call, target: object) -> tuple[str, str]:
    name = ast.unparse(node.func)
    if name == unit.names.own_name:
        return f"{name} calls itself", "write a loop"
    if target is MISSING:
        return f"an await of {name}(...), which is not known here", "define it above the graph"
    module = str(getattr(target, "__module__", "")).partition(".")[0]
    if module == "asyncio":
        return f"an await of {name}(...)", "use `perdure.gather`, `perdure.sleep`, or a task"
    if module == "perdure":
        return f"an await of {name}(...)", f"{INSTEAD}; for the other verbs write a workflow"
    return f"an await of {name}(...)", f"make it a task; {INSTEAD}"


def _arguments(unit: Unit, node: ast.Call, target: Any) -> dict[str, ast.expr] | None:
    name = ast.unparse(node.func)
    if any(isinstance(each, ast.Starred) for each in node.args) or any(
        each.arg is None for each in node.keywords
    ):
        unit.problems.add(node, f"a call of {name} with * or **", "spell the arguments out")
        return None
    keywords = {str(each.arg): each.value for each in node.keywords}
    try:
        packed = target.signature.pack(tuple(node.args), keywords)
    except TypeError as error:
        unit.problems.add(node, str(error), "call it as it is defined")
        return None
    return {each: _expression(value, node) for each, value in packed.items()}


def _expression(packed: Any, place: ast.AST) -> ast.expr:
    """An argument as an expression; the values of `*args` and `**kwargs` become a list or a dict."""
    if isinstance(packed, list):
        packed = ast.List(packed, ast.Load())
    elif isinstance(packed, dict):
        packed = ast.Dict([ast.Constant(key) for key in packed], list(packed.values()))
    else:
        argument: ast.expr = packed
        return argument
    made: ast.expr = ast.fix_missing_locations(ast.copy_location(packed, place))
    return made
