"""Upcasters: functions that convert values stored by older code to the types of newer code."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol, TypeVar

import msgspec

from perdure.authoring.modules import origin_of
from perdure.core.codec import Codec
from perdure.core.errors import InputError
from perdure.core.models import is_model
from perdure.core.upcasting import Upcaster, UpcastingCodec

F = TypeVar("F", bound=Callable[[Any], Any])

_known: dict[type, list[Upcaster]] = {}


class UpcasterDecorator(Protocol):
    """`@upcaster(Order)`."""

    def __call__(self, fn: F, /) -> F: ...


def upcaster(of: type, *, when: Callable[[Any], bool] | None = None) -> UpcasterDecorator:
    """Decode old shapes of a type: `@upcaster(Order)` on a function from the old JSON to the new.

    It is called with each stored value that can't be decoded as an `Order`, or for which `when` returns true, wherever
    an `Order` is expected: alone, in a list, in a field. If a type has several upcasters, each needs a `when`; they are
    tried in the order of definition, oldest first.
    """
    _require_shape(of)

    def register(fn: F) -> F:
        if not callable(fn):
            raise InputError(f"{fn!r} is not a function", "put @upcaster(...) on a function")
        code = getattr(fn, "__code__", None)
        name = getattr(fn, "__qualname__", repr(fn))
        place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
        # A reloaded module or a notebook's cell defines the same function again.
        others = [each for each in _known.get(of, ()) if _origin(each.fn) != _origin(fn)]
        if others and (when is None or any(each.when is None for each in others)):
            raise InputError(
                f"{of.__qualname__} has several upcasters, but not each has a `when`",
                "give each one `when=`, a function of the stored JSON",
            )
        _known[of] = [*others, Upcaster(of, fn, when, f"{name!r}{place}")]
        return fn

    return register


def _require_shape(of: object) -> None:
    """Refuse types that can't have an upcaster: `int`, for example, would match everywhere."""
    if is_model(of):
        raise InputError(
            f"{of!r} is a Pydantic model, and can't have an upcaster",
            "read old shapes in the model: @model_validator(mode='before')",
        )
    shape = msgspec.inspect.type_info(of) if isinstance(of, type) else None
    if getattr(shape, "cls", object) is object:
        raise InputError(
            f"{of!r} can't have an upcaster",
            "pass a dataclass, a msgspec struct, a TypedDict, a NamedTuple or an enum",
        )


def _origin(fn: Any) -> object:
    return origin_of(fn) if isinstance(fn, FunctionType) else fn


def reading_old_shapes(codec: Codec) -> Codec:
    """The codec with all upcasters of this process, including those registered later."""
    return codec if isinstance(codec, UpcastingCodec) else UpcastingCodec(codec, _known)
