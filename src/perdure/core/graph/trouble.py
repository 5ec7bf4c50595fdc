"""What went wrong in a graph: which errors it counts as, and what a program may read of it."""

import builtins
from typing import Any

import msgspec

from perdure.core.errors import PerdureError

ANY_ERROR = "builtins:Exception"


class Trouble(msgspec.Struct, frozen=True):
    """An error on its way along the edges. `payload` is how a task's failure was stored."""

    type_name: str
    message: str
    names: frozenset[str]
    """Its own type and those above it, each as 'module:qualified.name'."""
    payload: bytes | None = None
    code: int = 500

    @property
    def value(self) -> dict[str, Any]:
        """What a program sees."""
        return {"type": self.type_name.rpartition(":")[2], "message": self.message}

    @property
    def bound(self) -> dict[str, Any]:
        """The same, with what it takes to raise it again."""
        found = {**self.value, "names": sorted(self.names), "of": self.type_name}
        if self.payload is not None:
            found["failure"] = self.payload.decode("latin-1")
        return {**found, "code": self.code}

    def is_one_of(self, errors: tuple[str, ...]) -> bool:
        """Whether it counts as any of them; none means any error at all."""
        return not errors or any(full_name(error) in self.names for error in errors)


def full_name(error: str) -> str:
    return error if ":" in error else f"builtins:{error}"


def trouble_of(error: BaseException, payload: bytes | None = None, code: int = 500) -> Trouble:
    names = {f"{cls.__module__}:{cls.__qualname__}" for cls in type(error).__mro__}
    own = f"{type(error).__module__}:{type(error).__qualname__}"
    stored = getattr(error, "type_name", "")
    if isinstance(stored, str) and ":" in stored:  # an error that could not be rebuilt, as text
        return Trouble(
            stored, str(getattr(error, "message", "")), frozenset(names | {stored}), payload, code
        )
    message = error.what if isinstance(error, PerdureError) else str(error)
    return Trouble(own, message, frozenset(names), payload, code)


def named_trouble(error: str, message: str, bases: tuple[str, ...] = ()) -> Trouble:
    """An error that is known by name only. Of Python's own the types above it are known, too."""
    own = full_name(error)
    module, _, name = own.partition(":")
    names = {own, ANY_ERROR, *bases}
    cls = getattr(builtins, name, None) if module == "builtins" else None
    if isinstance(cls, type) and issubclass(cls, BaseException):
        names |= {f"{each.__module__}:{each.__qualname__}" for each in cls.__mro__}
    return Trouble(own, message, frozenset(names))


def bound_trouble(value: Any) -> Trouble | None:
    """The error that was bound to a variable; None if that is not one."""
    if not isinstance(value, dict) or not isinstance(value.get("of"), str):
        return None
    names, failure = value.get("names") or (), value.get("failure")
    payload = failure.encode("latin-1") if isinstance(failure, str) else None
    code = value.get("code")
    return Trouble(
        value["of"],
        str(value.get("message", "")),
        frozenset(map(str, names)),
        payload,
        code if isinstance(code, int) else 500,
    )
