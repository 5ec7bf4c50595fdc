"""Errors of graph steps: which error types they match, and what expressions can read of them."""

import builtins
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.core.errors import PerdureError

ANY_ERROR = "builtins:Exception"


class StepError(msgspec.Struct, frozen=True):
    """An error that travels along edges. `payload` is the stored failure of a task."""

    type_name: str
    message: str
    names: frozenset[str]
    """Its type and base types, each as 'module:qualified.name'."""
    payload: bytes | None = None
    code: int = 500

    @property
    def value(self) -> dict[str, Any]:
        """The error as expressions see it."""
        return {"type": self.type_name.rpartition(":")[2], "message": self.message}

    @property
    def bound(self) -> dict[str, Any]:
        """The error as it is bound to a variable, with all that raising it again needs."""
        found = {**self.value, "names": sorted(self.names), "of": self.type_name}
        if self.payload is not None:
            found["failure"] = self.payload.decode("latin-1")
        return {**found, "code": self.code}

    def is_one_of(self, errors: tuple[str, ...]) -> bool:
        """Whether it is one of these errors or of a subclass; an empty tuple matches every error."""
        return not errors or any(full_name(error) in self.names for error in errors)


def full_name(error: str) -> str:
    return error if ":" in error else f"builtins:{error}"


def step_error_from(
    error: BaseException,
    payload: bytes | None = None,
    code: int = 500,
    named: Callable[[type], str] | None = None,
) -> StepError:
    """The step error for an exception. `named` gives stable names for user types: those of a script are not in
    `__main__` elsewhere."""
    kinds = type(error).__mro__
    names = {f"{cls.__module__}:{cls.__qualname__}" for cls in kinds}
    own = f"{type(error).__module__}:{type(error).__qualname__}"
    if named is not None:
        own, names = named(type(error)), names | set(map(named, kinds))
    stored = getattr(error, "type_name", "")
    if (
        isinstance(stored, str) and ":" in stored
    ):  # the exception could not be rebuilt; it carries its type as text
        return StepError(
            stored, str(getattr(error, "message", "")), frozenset(names | {stored}), payload, code
        )
    message = error.what if isinstance(error, PerdureError) else str(error)
    return StepError(own, message, frozenset(names), payload, code)


def named_step_error(error: str, message: str, bases: tuple[str, ...] = ()) -> StepError:
    """The step error for a type that is known by name only. The base types of Python's own errors are added."""
    own = full_name(error)
    module, _, name = own.partition(":")
    names = {own, ANY_ERROR, *bases}
    cls = getattr(builtins, name, None) if module == "builtins" else None
    if isinstance(cls, type) and issubclass(cls, BaseException):
        names |= {f"{each.__module__}:{each.__qualname__}" for each in cls.__mro__}
    return StepError(own, message, frozenset(names))


def bound_step_error(value: Any) -> StepError | None:
    """The step error that is bound to a variable; None if the value is none."""
    if not isinstance(value, dict) or not isinstance(value.get("of"), str):
        return None
    names, failure = value.get("names") or (), value.get("failure")
    payload = failure.encode("latin-1") if isinstance(failure, str) else None
    code = value.get("code")
    return StepError(
        value["of"],
        str(value.get("message", "")),
        frozenset(map(str, names)),
        payload,
        code if isinstance(code, int) else 500,
    )
