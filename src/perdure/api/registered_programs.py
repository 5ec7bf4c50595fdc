"""The programs that this process has: their kinds, the schemas of what they take and give, their signals."""

import inspect
from functools import lru_cache
from typing import Any

import msgspec

from perdure.authoring.definition import Definition
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program
from perdure.authoring.registry import find
from perdure.authoring.signal import Signal
from perdure.core.errors import InputError, UnreadableProgram
from perdure.host.host import Host
from perdure.store.rows.records import Run

Schema = dict[str, Any]
"""A JSON Schema."""


def registered_program(host: Host, run: Run) -> Program[..., Any] | None:
    """The program of a run, if this process has it, or its store a graph that can be read here."""
    try:
        return host.dispatcher.programs.find(run.program, run.version, run.digest)
    except UnreadableProgram:
        return None


def kind_of(program: Program[..., Any] | None) -> str | None:
    if program is None:
        return None
    return "graph" if isinstance(program, GraphProgram) else "workflow"


def schema_of(wanted: Any) -> Schema | None:
    """The JSON Schema of a type; `None` if it has none, such as a Pydantic model."""
    if wanted is Any or wanted is object:
        return {}
    try:
        return msgspec.json.schema(wanted)
    except (TypeError, NameError, RecursionError):
        return None


def input_schema(program: Program[..., Any]) -> Schema | None:
    """The JSON Schema of the arguments, as one object."""
    if isinstance(program, GraphProgram):
        return _of_fields(program.model.input)
    try:
        return schema_of(program.signature.stored)
    except InputError:
        return None


def result_schema(definition: Definition[..., Any]) -> Schema | None:
    if isinstance(definition, GraphProgram):
        return _of_fields(definition.model.output)
    try:
        return schema_of(definition.signature.result)
    except InputError:
        return None


_FIELD_TYPES = {
    "int": "integer",
    "float": "number",
    "str": "string",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}


def _of_fields(fields: Any) -> Schema | None:
    if fields is None:
        return None
    shapes = {
        name: {"type": _FIELD_TYPES[field.type]} if field.type in _FIELD_TYPES else {}
        for name, field in fields.items()
    }
    required = [name for name, field in fields.items() if field.required]
    return {"type": "object", "properties": shapes, "required": required}


def step_schema(task: str) -> Schema | None:
    """The JSON Schema of what a task or program returns, if this process has it."""
    definition = find("task", task) or find("program", task)
    return None if definition is None else result_schema(definition)


def schema_of_signal(program: Program[..., Any] | None, name: str | None) -> Schema | None:
    """The JSON Schema of a signal's values, if the module of the program defines the signal."""
    if program is None or name is None or isinstance(program, GraphProgram):
        return None
    found = signals_of(program).get(name)
    return None if found is None else schema_of(found.of)


@lru_cache(maxsize=1024)
def signals_of(program: Program[..., Any]) -> dict[str, Signal[Any]]:
    """The signals that the code of a program can name: those of its module, and those that it closes over."""
    known = inspect.getclosurevars(program.fn)
    values = (*program.fn.__globals__.values(), *known.nonlocals.values())
    return {each.name: each for each in values if isinstance(each, Signal)}
