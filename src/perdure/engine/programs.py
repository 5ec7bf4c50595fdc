"""Programs that a host can run: those that this process registered, and graphs that were deployed to its store."""

from typing import Any

from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program
from perdure.authoring.registry import find, names, versions_of


class Programs:
    """What a name and a version lead to. A registered version goes before a deployed one of the same name.

    One per host: what is deployed depends on the store.
    """

    def __init__(self) -> None:
        self._deployed: dict[tuple[str, str], GraphProgram[..., Any]] = {}
        self._active: dict[str, str] = {}

    def add(self, program: GraphProgram[..., Any]) -> None:
        """It was deployed."""
        self._deployed[program.name, program.version] = program

    def activate(self, active: dict[str, str]) -> None:
        """Which version of each deployed name new runs are of."""
        self._active = dict(active)

    def is_deployed(self, program: Program[..., Any]) -> bool:
        """Whether it is one of the store's, and not this process's own."""
        return self._deployed.get((program.name, program.version)) is program

    def has(self, name: str, version: str) -> bool:
        """Whether just that version is known."""
        return (name, version) in self._deployed or version in versions_of("program", name)

    def find(self, name: str, version: str | None = None) -> Program[..., Any] | None:
        """That version if it is known, else the current one: the active one, or the last that was registered."""
        if version is not None:
            if version in versions_of("program", name):
                registered: Program[..., Any] | None = find("program", name, version)
                return registered
            if (name, version) in self._deployed:
                return self._deployed[name, version]
        current: Program[..., Any] | None = find("program", name)
        if current is None and name in self._active:
            return self._deployed.get((name, self._active[name]))
        return current

    def names(self) -> list[str]:
        """All whose runs can be taken up."""
        return sorted({*names("program"), *(name for name, _ in self._deployed)})
