"""The tasks and programs of this process by name: how a stored run finds its code.

A process may have several versions of a program. The one that was registered last is the *current* version: runs whose
own version is missing use it.
"""

from typing import Any

from perdure.authoring.definition import Definition
from perdure.core.errors import DuplicateName

_known: dict[tuple[str, str], dict[str, Definition[..., Any]]] = {}
"""Versions in the order of registration, by family and name."""


def register(definition: Definition[..., Any]) -> None:
    """Register a definition under its name and version.

    Registering the same function again (a reloaded module, an edited notebook cell) replaces it and keeps its position
    among the versions. A function defined inside another is replaced by the newest of its name and version. Any other
    definition with a taken name and version is refused.
    """
    versions = _known.get((definition.family, definition.name), {})
    other = versions.get(definition.version)
    if other is definition:  # as at most starts
        return
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
    """The task or program of that name, in that version if this process has it, else in the current one.

    None if this process has no version.
    """
    versions = _known.get((family, name))
    if versions is None:
        return None
    exact = None if version is None else versions.get(version)
    return exact or versions[next(reversed(versions))]


def check_annotations() -> None:
    """Refuse definitions with annotations that can't be resolved after all modules are imported.

    A definition inside a function may refer to names that the function defines later: its calls are checked instead.
    """
    for versions in list(_known.values()):
        for definition in list(versions.values()):
            if not definition.is_local:
                definition.signature.check()


def registered_names(family: str) -> list[str]:
    # A copy, because hosts call this in their own threads.
    return sorted(name for kind, name in list(_known) if kind == family)


def versions_of(family: str, name: str) -> list[str]:
    """The versions that this process has, the current one last."""
    return list(_known.get((family, name), ()))


def known_queues() -> set[str]:
    """The queues of all tasks in this process."""
    tasks = (
        each for (family, _), known in _known.items() if family == "task" for each in known.values()
    )
    return {queue for each in tasks if (queue := getattr(each, "queue", None)) is not None}
