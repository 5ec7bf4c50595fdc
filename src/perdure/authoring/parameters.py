"""Parameters of a program: values that an operator may change while its runs are open.

The program declares them with their types and defaults, as a class (workflows) or as fields (graphs). A run stores only
the values that were given, beside its input and in the acts that changed them; for the others the defaults of the code
hold, as they do for arguments.
"""

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, get_type_hints

import msgspec
from msgspec import UNSET

from perdure.authoring.values.storable import Unresolved, require_storable_annotation
from perdure.core.codec import Codec
from perdure.core.errors import InputError, NotDecodable
from perdure.core.graph.inputs import is_of
from perdure.core.graph.model import FieldType
from perdure.core.graph.suggestions import did_you_mean
from perdure.core.models import is_model

STORED_AS: Final = "@params"
"""The name of the given values among a run's arguments: no argument and no field can have it."""

_GivenValues = msgspec.defstruct(
    "given parameters",
    [("values", dict[str, Any] | msgspec.UnsetType, UNSET)],
    rename={"values": STORED_AS},
)


class DeclaredParameters(ABC):
    """What a program declares: the names of its parameters, their types and defaults."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names, in the order of the declaration."""

    @abstractmethod
    def misfit(self, codec: Codec, values: Mapping[str, Any]) -> str | None:
        """Which of the values is not of its parameter's type, each alone; `None` if all are."""

    @abstractmethod
    def read(self, codec: Codec, values: Mapping[str, Any]) -> Any:
        """All parameters: those in `values`, decoded, and the defaults of the others."""

    def unknown(self, values: Mapping[str, Any]) -> str | None:
        """The first name that no parameter has."""
        return next((name for name in values if name not in self.names), None)

    def require(self, codec: Codec, what: str, values: object) -> dict[str, Any]:
        """The values for parameters in their stored form. Raises `InputError` for unknown names and wrong types."""
        plain = codec.decode(codec.encode(values), object)
        if not isinstance(plain, dict):
            raise InputError(
                f"{what} is {values!r:.100}", "pass a dict of values by the names of parameters"
            )
        name = self.unknown(plain)
        if name is not None:
            known = f"the parameters are {', '.join(self.names)}"
            raise InputError(
                f"{what}: there is no parameter {name!r}", did_you_mean(name, self.names, known)
            )
        misfit = self.misfit(codec, plain)
        if misfit is not None:
            raise InputError(f"{what}: {misfit}", "pass values of the declared types")
        return plain


class ClassParameters(DeclaredParameters):
    """DeclaredParameters that are the fields of a class: a dataclass, a msgspec struct, or a Pydantic model.

    Every field needs a default, because a start may give no values.
    """

    def __init__(self, what: str, declared: Any) -> None:
        if not _has_fields(declared):
            raise InputError(
                f"{what} are declared as {declared!r:.100}",
                "declare them as a dataclass, a msgspec struct or a Pydantic model",
            )
        self.declared: type[Any] = declared
        try:
            declared()
        except Exception as error:  # the class is user code
            raise InputError(
                f"{what} can't be made without values ({error})",
                f"give every field of {declared.__name__} a default",
            ) from error
        with suppress(Unresolved):  # then the first use finds what can't be stored
            require_storable_annotation(what, declared)

    @cached_property
    def _types(self) -> dict[str, Any]:
        declared = self.declared
        if is_model(declared):
            return {name: each.annotation for name, each in declared.model_fields.items()}
        if issubclass(declared, msgspec.Struct):
            return {each.encode_name: each.type for each in msgspec.structs.fields(declared)}
        hints = get_type_hints(declared, include_extras=True)
        return {each.name: hints[each.name] for each in dataclasses.fields(declared) if each.init}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._types)

    def misfit(self, codec: Codec, values: Mapping[str, Any]) -> str | None:
        for name, value in values.items():
            try:
                codec.decode(codec.encode(value), self._types[name])
            except NotDecodable as error:
                return f"{name!r} is {value!r:.80}: {error.what}"
        return None

    def read(self, codec: Codec, values: Mapping[str, Any]) -> Any:
        known = {name: value for name, value in values.items() if name in self._types}
        return codec.decode(codec.encode(known), self.declared) if known else self.declared()


class FieldParameters(DeclaredParameters):
    """Parameters of a graph: fields, as those of its input. Expressions read them as `params.name`."""

    def __init__(self, fields: Mapping[str, FieldType]) -> None:
        self._fields = fields
        self._defaults = {name: field.default for name, field in fields.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._fields)

    def misfit(self, codec: Codec, values: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - fields have JSON types
        for name, value in values.items():
            field = self._fields[name]
            if not is_of(field, value):
                return f"{name!r} is {value!r:.80}, and has to be of type {field.type}"
        return None

    def read(self, codec: Codec, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as above
        known = {name: value for name, value in values.items() if name in self._fields}
        return {**self._defaults, **known}


def given_parameters(codec: Codec, payload: bytes | None) -> dict[str, Any]:
    """The values that a start has given, in their stored form. `payload` is the input of the run."""
    if payload is None:
        return {}
    values = codec.decode(payload, _GivenValues).values  # type: ignore[attr-defined]
    return {} if values is UNSET else values


def _has_fields(declared: object) -> bool:
    return inspect.isclass(declared) and (
        dataclasses.is_dataclass(declared)
        or issubclass(declared, msgspec.Struct)
        or is_model(declared)
    )
