"""The function's parameters as fields of the graph's input."""

import ast
from inspect import Parameter
from types import FunctionType
from typing import Any, Final, get_origin

from perdure.authoring.graphs.compiler.names import Names, is_awkward, parameters_of
from perdure.authoring.graphs.compiler.problems import Problems
from perdure.authoring.signature import CATCH_ALL, resolved, signature_without_resolving
from perdure.core.graph import model as m
from perdure.core.graph.fields import SHADOWED

_TYPES: Final[dict[Any, m.Type]] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    list: "list",
    dict: "dict",
    type(None): "none",
}
_DEFAULTS: Final = (bool, int, float, str, type(None))


class Parameters:
    """The input of the graph. `fields` is None if a parameter's name can't be a field: a graph has no field `input`.
    `renamed` are the variables whose name differs from their field's."""

    def __init__(self, fn: FunctionType, tree: ast.AsyncFunctionDef, problems: Problems) -> None:
        self._fn = fn
        self._fields: dict[str, m.FieldType] = {}
        self._nodes = {each.arg: each for each in parameters_of(tree.args)}
        self._problems = problems
        for parameter in signature_without_resolving(fn).parameters.values():
            self._fields[parameter.name] = self._field(parameter)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._fields)

    @property
    def fields(self) -> dict[str, m.FieldType] | None:
        names = self._fields.keys()
        unreadable = {name for name in names - SHADOWED if is_awkward(name)}
        is_nameless = "input" in names or (names & SHADOWED and unreadable)
        return None if is_nameless else self._fields

    @property
    def places(self) -> dict[str, ast.AST]:
        """The source of each field."""
        return {f".input.{name}": node for name, node in self._nodes.items()}

    def renamed(self, names: Names) -> m.Maps:
        """Expressions that read the fields, for variables whose name in the graph differs from their field's."""
        return {
            names.graph_name(name): self._reading(name, field)
            for name, field in self._fields.items()
            if names.graph_name(name) != name or (self.fields is None and not field.required)
        }

    def _reading(self, name: str, field: m.FieldType) -> str:
        if self.fields is None and not field.required:
            return f"input.get({name!r}, {field.default!r})"
        return f"input[{name!r}]"

    def _field(self, parameter: Parameter) -> m.FieldType:
        if parameter.kind in CATCH_ALL:
            what = f"the parameter {str(parameter).partition(':')[0]!r}"
            return self._refused(parameter, what, "give each argument a parameter of its own")
        is_required = parameter.default is Parameter.empty
        if not is_required and type(parameter.default) not in _DEFAULTS:
            what = f"the default {parameter.default!r} of {parameter.name!r}"
            return self._refused(parameter, what, "use a text, a number, True, False or None")
        if self._is_of_instance(parameter):
            what = f"the parameter {parameter.name!r} of a method"
            instead = (
                f"move the function out of its class, and pass what it needs of {parameter.name!r}"
            )
            return self._refused(parameter, what, instead)
        try:
            hint = self._hint(parameter)
        except Exception as error:  # an annotation is an expression: it may raise anything
            what = f"the annotation of {parameter.name!r} can't be resolved ({error})"
            instead = "define or import what it names above the graph, or leave the annotation out"
            return self._refused(parameter, what, instead)
        kind = _TYPES.get(get_origin(hint) or hint, "any")
        if is_required:
            return m.FieldType(type=kind)
        is_fitting = _TYPES[type(parameter.default)] == kind
        return m.FieldType(
            type=kind if is_fitting else "any", required=False, default=parameter.default
        )

    def _refused(self, parameter: Parameter, what: str, remedy: str) -> m.FieldType:
        self._problems.add(self._nodes[parameter.name], what, remedy)
        return m.FieldType()

    def _is_of_instance(self, parameter: Parameter) -> bool:
        """Whether the parameter is `self` or `cls` of a method."""
        around, _, _ = self._fn.__qualname__.rpartition(".")
        is_in_class = bool(around) and not around.endswith("<locals>")
        is_first = not self._fields
        return is_in_class and is_first and parameter.name in {"self", "cls"}

    def _hint(self, parameter: Parameter) -> Any:
        if parameter.annotation is Parameter.empty:
            return Any
        return resolved(self._fn, parameter.annotation)
