"""Upcasters: how values that older code stored are read by newer code."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from perdure.core.codec import Codec
from perdure.core.errors import InputError
from perdure.core.upcasting import Upcaster, UpcastingCodec

F = TypeVar("F", bound=Callable[[Any], Any])

_known: dict[type, list[Upcaster]] = {}


class UpcasterDecorator(Protocol):
    """`@upcaster(Order)`."""

    def __call__(self, fn: F, /) -> F: ...


def upcaster(of: type, *, when: Callable[[Any], bool] | None = None) -> UpcasterDecorator:
    """Read old shapes of a type: `@upcaster(Order)` on a function from the old JSON to the new.

    It sees each stored value that can't be read as an `Order`, or those that `when` says yes to, wherever an
    `Order` stands: alone, in a list, in a field. Of several for one type each needs a `when`; they are asked in
    the order in which they are written, oldest first.
    """
    _require_shape(of)

    def register(fn: F) -> F:
        if not callable(fn):
            raise InputError(f"{fn!r} is not a function", "put @upcaster(...) on a function")
        code = getattr(fn, "__code__", None)
        name = getattr(fn, "__qualname__", repr(fn))
        place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
        # A module that is loaded again, or a notebook's cell, brings the same function again.
        others = [each for each in _known.get(of, ()) if _origin(each.fn) != _origin(fn)]
        if others and (when is None or any(each.when is None for each in others)):
            raise InputError(
                f"{of.__qualname__} has several upcasters, and not each says when it is for a value",
                "give each one `when=`, a function of the stored JSON",
            )
        _known[of] = [*others, Upcaster(of, fn, when, f"{name!r}{place}")]
        return fn

    return register


def _require_shape(of: object) -> None:
    """A type whose values are found wherever it stands; `int` would be everywhere."""
    shape = msgspec.inspect.type_info(of) if isinstance(of, type) else None
    if getattr(shape, "cls", object) is object:
        raise InputError(
            f"{of!r} can't have an upcaster",
            "pass a dataclass, a msgspec struct, a TypedDict, a NamedTuple or an enum",
        )


def _origin(fn: Any) -> object:
    code = getattr(fn, "__code__", None)
    return fn if code is None else (code.co_filename, fn.__qualname__)


def reading_old_shapes(codec: Codec) -> Codec:
    """The codec, with all upcasters of this process, now and later."""
    return codec if isinstance(codec, UpcastingCodec) else UpcastingCodec(codec, _known)
