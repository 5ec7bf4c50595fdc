"""Checks the arguments that workers pass against the tasks registered in this process. Unknown tasks are skipped."""

import types
from collections.abc import Iterator
from inspect import Parameter
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from perdure.authoring.registry import find
from perdure.authoring.signature import Signature
from perdure.core.codec import JsonCodec
from perdure.core.errors import ExpressionProblem, InputError
from perdure.core.graph.gaps import NO_GAPS, Gaps
from perdure.core.graph.inference import clashes
from perdure.core.graph.model import Graph, Problem, Type, WorkerNode
from perdure.core.graph.scopes import Scopes, TypeScope, known_type
from perdure.core.graph.suggestions import did_you_mean
from perdure.core.graph.survey import Survey
from perdure.core.syntax import literal_value

_TYPES: Final[dict[Any, Type]] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    list: "list",
    dict: "dict",
    type(None): "none",
}
_codec = JsonCodec()


def argument_problems(graph: Graph, gaps: Gaps = NO_GAPS) -> list[Problem]:
    """Problems with the arguments that the workers of a graph pass to registered tasks."""
    survey = Survey(graph, gaps)
    tasks = {
        node.name: find("task", node.task) if node.task else None
        for node in survey.of_kind(WorkerNode)
    }
    if not any(tasks.values()):
        return []
    scopes = Scopes(survey)
    found: list[Problem] = []
    for node in survey.of_kind(WorkerNode):
        task = tasks[node.name]
        if task is not None:
            scope = scopes.before.get(node.name, {})
            found.extend(_Passing(survey, node, scope).problems(task.signature))
    return found


class _Passing:
    """The arguments of one worker."""

    def __init__(self, survey: Survey, node: WorkerNode, scope: TypeScope) -> None:
        self._survey = survey
        self._node = node
        self._scope = scope

    def problems(self, signature: Signature) -> Iterator[Problem]:
        node = self._node
        try:
            fields = msgspec.structs.fields(signature.stored)
        except InputError as error:
            yield Problem(node.name, "task", error.what, error.remedy)
            return
        kinds = dict(signature.shape)
        wanted = {
            field.encode_name: field
            for field in fields
            if kinds[field.encode_name] is not Parameter.VAR_KEYWORD
        }
        takes_any = Parameter.VAR_KEYWORD in kinds.values()
        is_whole = node.name not in self._survey.gaps.partial
        for name, field in wanted.items():
            if is_whole and field.required and name not in node.input:
                what = f"the argument {name!r} of the task {node.task!r} is missing"
                yield Problem(node.name, "input", what, f"add {name!r} to the input")
        for name, text in node.input.items():
            if name in wanted:
                yield from self._clash(name, text, wanted[name].type)
            elif not takes_any:
                what = f"the task {node.task!r} has no argument {name!r}"
                remedy = did_you_mean(name, wanted, f"it has {', '.join(wanted) or 'none'}")
                yield Problem(node.name, f"input.{name}", what, remedy)

    def _clash(self, name: str, text: str, wanted: Any) -> Iterator[Problem]:
        parsed = self._survey.parsed(text)
        if isinstance(parsed, ExpressionProblem):
            return
        place = (self._node.name, f"input.{name}")
        try:
            value = literal_value(parsed.text)
        except ValueError:  # it is no literal
            given = known_type(self._survey, text, self._scope)
            if all(clashes(given, kind) for kind in _types_of(wanted)):
                what = f"{text} is of type {given}, and {name!r} is {_spelled(wanted)}"
                yield Problem(*place, what, "convert it, or pass another value")
            return
        try:
            _codec.decode(_codec.encode(value), wanted)
        except InputError:
            what = f"{text} is no value for {name!r}, which is {_spelled(wanted)}"
            yield Problem(*place, what, "pass a value of that type")


def _types_of(wanted: Any) -> tuple[Type, ...]:
    """The graph types that an annotation allows; "any" for a part without a graph type."""
    if get_origin(wanted) in {Union, types.UnionType}:
        return tuple(kind for part in get_args(wanted) for kind in _types_of(part))
    return (_TYPES.get(get_origin(wanted) or wanted, "any"),)


def _spelled(wanted: Any) -> str:
    return wanted.__name__ if isinstance(wanted, type) else str(wanted).replace("typing.", "")
