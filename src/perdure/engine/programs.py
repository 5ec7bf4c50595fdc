"""Programs that a host can run: those that this process registered, and graphs that were deployed to its store."""

from typing import Any

from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program
from perdure.authoring.registry import find, names, versions_of
from perdure.core.errors import UnreadableProgram


class Programs:
    """What a name and a version lead to. A registered version goes before a deployed one of the same name.

    One per host: what is deployed depends on the store.
    """

    def __init__(self) -> None:
        self._deployed: dict[tuple[str, str], GraphProgram[..., Any]] = {}
        self._unreadable: dict[tuple[str, str], str] = {}
        self._active: dict[str, str] = {}

    def add(self, program: GraphProgram[..., Any]) -> None:
        """It was deployed."""
        self._deployed[program.name, program.version] = program

    def add_unreadable(self, name: str, version: str, reason: str) -> None:
        """It was deployed, and this process can't read it."""
        self._unreadable[name, version] = reason

    def activate(self, name: str, version: str) -> None:
        """New runs of that deployed name are of this version."""
        self._active[name] = version

    def is_deployed(self, program: Program[..., Any]) -> bool:
        """Whether it is one of the store's, and not this process's own."""
        return self._deployed.get((program.name, program.version)) is program

    def deployed(self, name: str, version: str) -> GraphProgram[..., Any]:
        """Just that version, as it was deployed. Raises `UnreadableProgram`."""
        found = self._deployed.get((name, version))
        if found is None:
            raise self._not_read(name, version)
        return found

    def digests(self) -> set[str]:
        """Of all that was deployed and could be read."""
        return {program.digest for program in self._deployed.values()}

    def has(self, name: str, version: str) -> bool:
        """Whether just that version is known."""
        known = (name, version) in self._deployed or (name, version) in self._unreadable
        return known or version in versions_of("program", name)

    def find(
        self, name: str, version: str | None = None, digest: str | None = None
    ) -> Program[..., Any] | None:
        """That version if it is known, else the current one: the last that was registered, or the active one.

        Where this process and the store have the same version and differ, `digest` decides. Raises
        `UnreadableProgram` if only the store has the version: another one is not what it says.
        """
        if version is not None:
            exact = self._exactly(name, version)
            if len(exact) > 1 and exact[0].digest != digest == exact[1].digest:
                return exact[1]
            if exact:
                return exact[0]
            if (name, version) in self._unreadable:
                raise self._not_read(name, version)
        current: Program[..., Any] | None = find("program", name)
        if current is None and name in self._active:
            return self.deployed(name, self._active[name])
        return current

    def _exactly(self, name: str, version: str) -> list[Program[..., Any]]:
        """This process's own first."""
        known = version in versions_of("program", name)
        registered = find("program", name, version) if known else None
        found = registered, self._deployed.get((name, version))
        return [program for program in found if program is not None]

    def _not_read(self, name: str, version: str) -> UnreadableProgram:
        reason = self._unreadable.get((name, version), "it is not known here")
        return UnreadableProgram(
            f"version {version!r} of graph {name!r} was deployed, and can't be read here: {reason}",
            "upgrade Perdure on this host: a newer one deployed it",
        )

    def names(self) -> list[str]:
        """All whose runs can be taken up: of what is deployed, that whose tasks this process has."""
        # A copy: hosts ask in a thread of their own.
        deployed = list(self._deployed.values())
        able = (each.name for each in deployed if _has_all(each.tasks))
        return sorted({*names("program"), *able})


def _has_all(tasks: frozenset[str]) -> bool:
    return all(find("task", task) is not None for task in tasks)
