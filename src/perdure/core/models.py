"""Pydantic models to JSON and back. Pydantic is not imported: a model is recognized by its methods.

A model is stored only if reading it back gives an equal one. JSON schemas reveal models for which that can't hold, so
an annotation is refused before there is a value.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

_FIELD: Final = re.compile(r"field_name='([^']*)'")


def is_model(cls: object) -> bool:
    """Whether it is a model of Pydantic 2."""
    return (
        isinstance(cls, type)
        and hasattr(cls, "__pydantic_complete__")
        and hasattr(cls, "model_validate_json")
    )


def why_not_storable(cls: Any) -> str | None:
    """What storing a model would lose, as text; None if nothing.

    Raises `NameError` if it names a class that is not defined yet.
    """
    if not cls.__pydantic_complete__ and cls.model_rebuild(raise_errors=False) is False:
        raise NameError(f"model {cls.__qualname__} is not fully defined")
    return _loss_in(cls)


@lru_cache(maxsize=1024)
def _loss_in(cls: Any) -> str | None:
    try:
        read, written = (
            cls.model_json_schema(by_alias=False, mode=m) for m in ("validation", "serialization")
        )
    except Exception as error:  # Pydantic's errors, and those of the model's hooks
        return f"{cls.__qualname__!r} has no JSON form: {str(error).splitlines()[0]}"
    for part in _objects(written):
        if part.get("uniqueItems"):
            return (
                f"{cls.__qualname__!r} has a set, whose order differs between processes: use a list"
            )
        if part.get("writeOnly"):
            return f"{cls.__qualname__!r} hides a value when it is written, as SecretStr does"
    for name, fields in _properties(read).items():
        left_out = fields - _properties(written).get(name, fields)
        if left_out:
            return (
                f"{name!r} leaves {', '.join(map(repr, sorted(left_out)))} out when it is written"
            )
    return None


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(part, dict | list):
            yield from _objects(part)


def _properties(schema: dict[str, Any]) -> dict[str, set[str]]:
    """The fields of each model in a schema, by its title."""
    return {
        str(part.get("title")): set(part["properties"])
        for part in _objects(schema)
        if part.get("type") == "object" and isinstance(part.get("properties"), dict)
    }


def encode_model(value: Any) -> Any:
    """A model as JSON-like values.

    Raises `TypeError` for other values, and `ValueError` for a model that would not be read back equal.
    """
    cls = type(value)
    if not is_model(cls):
        raise TypeError(f"Encoding objects of type {cls.__qualname__} is unsupported")
    reason = why_not_storable(cls)
    if reason is not None:
        raise ValueError(reason)
    try:
        plain = value.model_dump(mode="json", round_trip=True, by_alias=False, warnings="error")
    except ValueError as error:
        # Pydantic's text quotes values, and this error is logged.
        fields = dict.fromkeys(_FIELD.findall(str(error)))
        named = ", ".join(map(repr, fields)) or "a field"
        raise ValueError(
            f"{named} of a {cls.__qualname__} is not what its annotation says"
        ) from None
    if _validated(cls, plain) != value:
        raise ValueError(f"a {cls.__qualname__} is not equal to what would be read again")
    return plain


def decode_model(cls: Any, plain: Any) -> Any:
    """The model that was stored, validated."""
    if isinstance(plain, cls):  # as every value where the annotation says `object`
        return plain
    if is_model(cls):
        return _validated(cls, plain)
    raise TypeError(f"Expected `{cls.__qualname__}`, got `{type(plain).__qualname__}`")


def _validated(cls: Any, plain: Any) -> Any:
    try:
        return cls.model_validate_json(msgspec.json.encode(plain), by_alias=False, by_name=True)
    except ValueError as error:
        raise ValueError(_without_values(cls, error)) from None


def _without_values(cls: Any, error: ValueError) -> str:
    """The faults by field, without values: Pydantic's own text quotes them, and errors are logged."""
    found: Any = getattr(error, "errors", None)
    if found is None:
        return str(error)
    faults = found(include_input=False, include_url=False, include_context=False)
    texts = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in faults]
    return f"not a {cls.__qualname__}: {'; '.join(texts)}"
