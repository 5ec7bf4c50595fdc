"""Checks the input and the output of a graph run against their declared fields."""

from collections.abc import Mapping
from typing import Any, Final

from perdure.core.graph.model import FieldType
from perdure.core.graph.suggestions import did_you_mean

_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
    "none": (type(None),),
}


def input_faults(fields: Mapping[str, FieldType], given: Mapping[str, Any]) -> list[str]:
    """All faults of an input: missing, mistyped and unknown fields."""
    faults = [
        f"{name!r} is missing"
        for name, field in fields.items()
        if field.required and name not in given
    ]
    for name, value in given.items():
        if name not in fields:
            known = f"the fields are {', '.join(fields)}" if fields else "there are no fields"
            faults.append(f"there is no field {name!r}: {did_you_mean(name, fields, known)}")
        elif not is_of(fields[name], value):
            faults.append(f"{name!r} is {value!r:.80}, and has to be of type {fields[name].type}")
    return faults


def output_faults(fields: Mapping[str, FieldType], result: Any) -> list[str]:
    """All faults of an output."""
    if not isinstance(result, Mapping):
        return [f"{result!r:.80} has no fields, and {', '.join(fields) or 'none'} are said of it"]
    return input_faults(fields, result)


def is_of(field: FieldType, value: Any) -> bool:
    """Whether a decoded value has the field's type, or is its default."""
    if field.type == "any" or (value is None and not field.required and field.default is None):
        return True
    if isinstance(value, bool) and field.type != "bool":
        return False
    return isinstance(value, _KINDS[field.type])
