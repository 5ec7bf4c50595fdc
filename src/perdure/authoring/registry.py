"""Which tasks and workflows this process has, by name: how a stored run finds its code again."""

from typing import Any

from perdure.authoring.definition import Definition
from perdure.core.errors import DuplicateName

_known: dict[tuple[str, str], Definition[..., Any]] = {}


def register(definition: Definition[..., Any]) -> None:
    """Make it known under its name.

    The same function again replaces itself (a reloaded module, a notebook's cell run twice). A function
    defined inside another gives way to the newest of its name. Anything else of a taken name is refused.
    """
    key = definition.noun, definition.name
    other = _known.get(key)
    if other is not None and not (definition.is_local or other.is_local):
        if definition.origin != other.origin:
            raise DuplicateName(
                f"{definition.noun} {definition.name!r} ({definition.place}) has the name of "
                f"another one ({other.place})",
                f"give one of them another: @{definition.noun}(name=...)",
            )
    _known[key] = definition


def find(noun: str, name: str) -> Any | None:
    """The task or workflow of that name; `None` if this process does not have it."""
    return _known.get((noun, name))


def names(noun: str) -> list[str]:
    return sorted(name for kind, name in _known if kind == noun)
