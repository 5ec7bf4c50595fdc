"""Converts old shapes of stored values when they are read. Stored values are never changed.

An *upcaster* belongs to a type: a function from the JSON of an old shape to that of a newer one. Wherever the type
occurs in the wanted type (in a list, in a field, in an Optional), its upcasters get the stored value first, the
oldest upcaster first; then the values inside the result are converted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, get_origin, get_type_hints

import msgspec
from msgspec import inspect as shapes

from perdure.core.codec import Codec
from perdure.core.errors import NotDecodable, NotEncodable
from perdure.core.ids import RunId
from perdure.core.limits import MAX_PAYLOAD_BYTES
from perdure.core.replay.shapes import shape as payload_shape

T = TypeVar("T")

_SCALARS: dict[type, type] = {
    shapes.BoolType: bool,
    shapes.FloatType: float,
    shapes.IntType: int,
    shapes.StrType: str,
}


class Upcaster(NamedTuple):
    """`when` selects the values to convert; without it, those that can't be decoded as `of`."""

    of: type
    fn: Callable[[Any], Any]
    when: Callable[[Any], bool] | None
    name: str


Upcasters = Mapping[type, Sequence[Upcaster]]


class UpcastingCodec:
    """A codec that applies upcasters before another codec decodes."""

    def __init__(self, inner: Codec, upcasters: Upcasters) -> None:
        self._inner = inner
        self._upcasters = upcasters
        self.encode = inner.encode
        self.plain: Callable[[bytes], bytes] = getattr(inner, "plain", bytes)
        bound: Callable[[RunId], Codec] | None = getattr(inner, "of_run", None)
        self.of_run: Callable[[RunId], Codec] | None = (
            None if bound is None else lambda run_id: UpcastingCodec(bound(run_id), upcasters)
        )
        """The codec of one run's machine, if runs have codecs of their own."""

    def around(self, wrap: Callable[[Codec], Codec]) -> "UpcastingCodec":
        """The same upcasters with another codec inside."""
        return UpcastingCodec(wrap(self._inner), self._upcasters)

    def decode(self, payload: bytes, wanted: type[T]) -> T:
        if not self._upcasters:
            return self._inner.decode(payload, wanted)
        modern, applied = self._upcast(payload, wanted)
        try:
            return self._inner.decode(modern, wanted)
        except NotDecodable as error:
            if not applied:
                raise
            what = (
                f"{error.what}, even after upcaster {', '.join(applied)}: {payload_shape(modern)}"
            )
            raise NotDecodable(what, "fix the upcaster; the stored value is unchanged") from error

    def modernized(self, payload: bytes, wanted: type) -> bytes | None:
        """An old payload as the value would be stored today; `None` if no upcaster applies."""
        modern, applied = self._upcast(payload, wanted)
        return self.encode(self.decode(modern, wanted)) if applied else None

    def _upcast(self, payload: bytes, wanted: type) -> tuple[bytes, list[str]]:
        """The payload in its newest shape, and the upcasters that made it so."""
        shape = _shape_of(wanted)
        walk = _Walk(self._upcasters)
        if shape is None or not walk.concerns(shape):
            return payload, []
        value = walk.upcast(self._inner.decode(payload, object), shape)
        if not walk.applied:
            return payload, []
        try:
            # A newer shape may be larger than a payload may be.
            return self._inner.encode(value, limit=2 * MAX_PAYLOAD_BYTES), walk.applied
        except NotEncodable as error:
            what = f"upcaster {', '.join(walk.applied)} returned a value without a JSON form: {error.what}"
            raise NotDecodable(what, "return JSON-like values from an upcaster") from error


class _Walk:
    """Converts one value along the shape of its type."""

    def __init__(self, upcasters: Upcasters) -> None:
        self._upcasters = upcasters
        self._concerned: dict[int, bool] = {}
        self.applied: list[str] = []

    def concerns(self, shape: shapes.Type) -> bool:
        """Whether the shape contains a type with upcasters."""
        known = self._concerned.get(id(shape))
        if known is None:
            self._concerned[id(shape)] = False  # during the visit: a shape may refer to itself
            known = _class_of(shape) in self._upcasters or any(map(self.concerns, _parts(shape)))
            self._concerned[id(shape)] = known
        return known

    def upcast(self, value: Any, shape: shapes.Type) -> Any:
        if not self.concerns(shape):
            return value
        if isinstance(shape, shapes.Metadata):
            return self.upcast(value, shape.type)
        if isinstance(shape, shapes.UnionType):
            member = self._member(value, shape)
            return value if member is None else self.upcast(value, member)
        for upcaster in self._upcasters.get(_class_of(shape), ()):
            if self._is_for(upcaster, value, shape):
                value = self._apply(upcaster, value)
        return self._upcast_inside(value, shape)

    def _is_for(self, upcaster: Upcaster, value: Any, shape: shapes.Type) -> bool:
        if upcaster.when is None:
            return not self._reads_as(value, shape)
        return bool(self._call(upcaster, upcaster.when, value))

    def _apply(self, upcaster: Upcaster, value: Any) -> Any:
        self.applied.append(upcaster.name)
        # A copy: the upcaster must not change the original.
        return self._call(upcaster, upcaster.fn, dict(value) if isinstance(value, dict) else value)

    def _call(self, upcaster: Upcaster, fn: Callable[[Any], Any], value: Any) -> Any:
        try:
            return fn(value)
        except (Exception, SystemExit) as error:
            stored = payload_shape(msgspec.json.encode(value))
            raise NotDecodable(
                f"upcaster {upcaster.name} of {upcaster.of.__qualname__} failed with {error!r} on {stored}",
                "fix the upcaster; the stored value is unchanged",
            ) from error

    def _member(self, value: Any, union: shapes.UnionType) -> shapes.Type | None:
        """The union member that the value is: by tag, else one that it decodes as, else one with upcasters."""
        if value is None:
            return None
        for judge in (_has_tag, self._reads_as, self._may_become):
            for member in union.types:
                if judge(value, member):
                    return member
        return next(filter(self.concerns, union.types))

    def _may_become(self, value: Any, shape: shapes.Type) -> bool:
        return self.concerns(shape) and _is_of_kind(value, shape)

    def _reads_as(self, value: Any, shape: shapes.Type) -> bool:
        """Whether the value has this shape; inner parts with upcasters of their own are not checked."""
        if isinstance(shape, shapes.Metadata):
            return self._reads_as(value, shape.type)
        if not _is_of_kind(value, shape):
            return False
        fields = getattr(shape, "fields", None)
        if fields is None or not any(self.concerns(field.type) for field in fields):
            return _decodes(value, getattr(shape, "cls", _SCALARS.get(type(shape), Any)))
        places = dict(_places(value, shape))
        if any(field.required and field.name not in places for field in fields):
            return False
        hints = get_type_hints(_class_of(shape), include_extras=True)
        return all(
            self.concerns(field.type) or _decodes(places[field.name][1], hints[field.name])
            for field in fields
            if field.name in places
        )

    def _upcast_inside(self, value: Any, shape: shapes.Type) -> Any:
        if isinstance(value, dict) and isinstance(shape, shapes.DictType):
            return {
                self.upcast(key, shape.key_type): self.upcast(inner, shape.value_type)
                for key, inner in value.items()
            }
        if not isinstance(value, dict | list):
            return value
        inside = value.copy()
        for field, (place, inner) in _places(value, shape):
            inside[place] = self.upcast(inner, _part(shape, field))
        return inside


@lru_cache(maxsize=1024)
def _shape_of(wanted: Any) -> shapes.Type | None:
    """The shape of a type; `None` if msgspec does not know the type."""
    try:
        return shapes.type_info(wanted)
    except TypeError:
        return None


def _class_of(shape: shapes.Type) -> Any:
    """The class that a shape describes; of a generic one, without arguments."""
    cls = getattr(shape, "cls", None)
    return get_origin(cls) or cls


def _parts(shape: shapes.Type) -> Iterator[shapes.Type]:
    """The shapes that a shape is made of."""
    yield from (field.type for field in getattr(shape, "fields", ()))
    yield from (*getattr(shape, "types", ()), *getattr(shape, "item_types", ()))
    for name in ("type", "item_type", "key_type", "value_type"):
        part = getattr(shape, name, None)
        if part is not None:
            yield part


def _part(shape: shapes.Type, place: Any) -> Any:
    """The shape of what is at a place that `_places` gives."""
    fields = getattr(shape, "fields", None)
    if fields is not None:
        return next(field.type for field in fields if field.name == place)
    items = getattr(shape, "item_types", None)
    return shape.item_type if items is None else items[place]  # type: ignore[attr-defined]


def _places(value: Any, shape: shapes.Type) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    """The parts of a value: the field or number of each in the shape, and its key in the value with what is there."""
    fields = getattr(shape, "fields", None)
    if fields is not None and isinstance(value, dict):
        for field in fields:
            if field.encode_name in value:
                yield field.name, (field.encode_name, value[field.encode_name])
    elif fields is not None and isinstance(value, list):
        first = 1 if getattr(shape, "tag", None) is not None else 0
        for place, (field, inner) in enumerate(zip(fields, value[first:], strict=False), first):
            yield field.name, (place, inner)
    elif isinstance(value, list):
        length = len(getattr(shape, "item_types", value))
        for place, inner in enumerate(value[:length]):
            yield place, (place, inner)


def _is_of_kind(value: Any, shape: shapes.Type) -> bool:
    """Whether the value is an object, a list or neither, as the shape is."""
    if isinstance(shape, shapes.Metadata):
        return _is_of_kind(value, shape.type)
    is_list = bool(getattr(shape, "array_like", False)) or isinstance(
        shape, shapes.NamedTupleType | shapes.TupleType
    )
    if is_list or hasattr(shape, "item_type"):
        return isinstance(value, list)
    if hasattr(shape, "fields") or isinstance(shape, shapes.DictType):
        return isinstance(value, dict)
    if isinstance(shape, shapes.NoneType):
        return value is None
    return value is not None and not isinstance(value, dict | list)


def _has_tag(value: Any, shape: shapes.Type) -> bool:
    if not isinstance(shape, shapes.StructType) or shape.tag_field is None:
        return False
    if shape.array_like:
        return isinstance(value, list) and value[:1] == [shape.tag]
    return isinstance(value, dict) and value.get(shape.tag_field) == shape.tag


def _decodes(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, TypeVar):
        return True
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=wanted)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return False
    return True
