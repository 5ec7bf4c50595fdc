"""Types: outputs match the declared fields, and spreads have items, as far as types are known without a run."""

from collections.abc import Iterator
from typing import Final

from perdure.core.expressions import ExpressionProblem
from perdure.core.graph import model as m
from perdure.core.graph.inference import dict_field_types, field_clashes, type_of
from perdure.core.graph.model import FieldType, Problem
from perdure.core.graph.scopes import Scopes, TypeScope, known_type
from perdure.core.graph.suggestions import did_you_mean
from perdure.core.graph.survey import Survey

_WITHOUT_ITEMS: Final = frozenset(("int", "float", "bool", "none"))


def problems(survey: Survey, scopes: Scopes) -> Iterator[Problem]:
    for spread in survey.of_kind(m.SpreadNode):
        if spread.name in survey.reached:
            yield from _items(survey, spread, scopes.before[spread.name])
    wanted = survey.graph.output
    if wanted is None:
        return
    if not any(survey.of_kind(m.OutputNode)):
        yield from _nothing(survey, wanted)
    for node in survey.of_kind(m.OutputNode):
        if node.name not in survey.reached:
            continue
        if not isinstance(survey.parsed(node.value), ExpressionProblem):
            yield from _value(node, wanted, scopes.before[node.name])


def _items(survey: Survey, node: m.SpreadNode, scope: TypeScope) -> Iterator[Problem]:
    given = known_type(survey, node.items, scope)
    if given in _WITHOUT_ITEMS:
        what = f"it is of type {given}, which has no items"
        yield Problem(node.name, "items", what, "spread a list")


def _nothing(survey: Survey, wanted: dict[str, FieldType]) -> Iterator[Problem]:
    """Without an output the result is the job data, or None."""
    gaps = survey.gaps
    if not gaps.has_all_kinds or gaps.partial or any(survey.of_kind(m.CallNode)):
        return
    set_names = {name for node in survey.nodes.values() for name in getattr(node, "job", ())}
    missing = [name for name, field in wanted.items() if field.required and name not in set_names]
    if missing or not set_names:
        fields = ", ".join(repr(name) for name in missing)
        what = f"no activity outputs {fields}" if missing else "there is no output"
        yield Problem("", "output", what, "add an output node, or remove `output`")


def _value(node: m.OutputNode, wanted: dict[str, FieldType], scope: TypeScope) -> Iterator[Problem]:
    given = type_of(node.value, scope)
    if given not in {"dict", "any"}:
        yield Problem(
            node.name,
            "value",
            f"it is of type {given}, and the graph outputs the fields {_names(wanted)}",
            "output a dict of them",
        )
        return
    fields = dict_field_types(node.value, scope)
    if fields is None:
        return
    for name, field in wanted.items():
        if name not in fields and field.required:
            yield Problem(
                node.name,
                "value",
                f"the field {name!r} of the graph's output is missing",
                "add it, or say that it is not required",
            )
    for name, kind in fields.items():
        if name not in wanted:
            yield Problem(
                node.name,
                "value",
                f"the graph's output has no field {name!r}",
                did_you_mean(name, wanted, f"it has {_names(wanted)}"),
            )
        elif field_clashes(kind, wanted[name]):
            yield Problem(
                node.name,
                "value",
                f"the field {name!r} is of type {kind}, and shall be {wanted[name].type}",
                "convert it, or change the type in the graph's output",
            )


def _names(fields: dict[str, FieldType]) -> str:
    return ", ".join(repr(name) for name in fields) or "(none)"
