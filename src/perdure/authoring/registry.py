"""Which tasks and programs this process has, by name: how a stored run finds its code again.

Of a program several versions may be there side by side. The one that came last is the *current* one: new code
for the runs whose own version is gone.
"""

from typing import Any

from perdure.authoring.definition import Definition
from perdure.core.errors import DuplicateName

_known: dict[tuple[str, str], dict[str, Definition[..., Any]]] = {}
"""By family and name, the versions in the order in which they came."""


def register(definition: Definition[..., Any]) -> None:
    """Make it known under its name and version.

    The same function again replaces itself (a reloaded module, a notebook's cell run twice), and keeps its place
    among the versions. A function defined inside another gives way to the newest of its name and version.
    Anything else of a taken name and version is refused.
    """
    versions = _known.get((definition.family, definition.name), {})
    other = versions.get(definition.version)
    if other is not None and not (definition.is_local or other.is_local):
        if definition.origin != other.origin:
            raise DuplicateName(*_collision(definition, other))
    versions[definition.version] = definition
    _known[definition.family, definition.name] = versions


def _collision(definition: Definition[..., Any], other: Definition[..., Any]) -> tuple[str, str]:
    noun, taken, remedy = definition.noun, "name", f"@{definition.noun}(name=...)"
    if definition.family == "program":
        taken = "name and version" if definition.version else "name"
        remedy += " or version=..."
    what = f"{noun} {definition.name!r} ({definition.place}) has the {taken} of another one"
    return f"{what} ({other.place})", f"give one of them another: {remedy}"


def find(family: str, name: str, version: str | None = None) -> Any | None:
    """The task or program of that name: of that version if it is there, else the current one.

    `None` if this process does not have any.
    """
    versions = _known.get((family, name))
    if versions is None:
        return None
    exact = None if version is None else versions.get(version)
    return exact or versions[next(reversed(versions))]


def names(family: str) -> list[str]:
    # A copy: hosts ask in a thread of their own.
    return sorted(name for kind, name in list(_known) if kind == family)


def versions_of(family: str, name: str) -> list[str]:
    """The versions that this process has of it, the current one last."""
    return list(_known.get((family, name), ()))
