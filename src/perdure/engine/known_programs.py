"""The programs that a host can run: those registered in this process, and graphs deployed to its store."""

from typing import Any

from perdure.authoring.graphs.program import GraphProgram, deployed_program
from perdure.authoring.program import Program
from perdure.authoring.registry import find, registered_names, versions_of
from perdure.core.errors import UnreadableProgram


class KnownPrograms:
    """Finds programs by name and version. A registered version takes precedence over a deployed one of the same name.

    One per host, because deployed graphs belong to a store.
    """

    def __init__(self) -> None:
        self._deployed: dict[tuple[str, str], GraphProgram[..., Any]] = {}
        self._unreadable: dict[tuple[str, str], str] = {}
        self._active: dict[str, str] = {}
        self._incomplete: dict[str, int] = {}
        """Programs of which a run needed a definition that this process lacks, and how many definitions it had then."""

    def add(self, program: GraphProgram[..., Any]) -> None:
        """Add a deployed graph."""
        self._deployed[program.name, program.version] = program

    def read(self, name: str, version: str, digest: str, content: str) -> str | None:
        """Add the graph that was deployed as `content`. Returns why it can't be read, or `None`."""
        try:
            program = deployed_program(content.encode())
        except Exception as error:  # a newer Perdure may have written anything
            return f"{type(error).__name__}: {error}"
        # Reading drops unknown fields, so a graph that has any differs from its stored text when written again.
        about = program.name, program.version, program.digest, program.content.decode()
        if about != (name, version, digest, content):
            return "it has fields that this version of Perdure does not know"
        self.add(program)
        return None

    def add_unreadable(self, name: str, version: str, reason: str) -> None:
        """Add a deployed version that this process can't read."""
        self._unreadable[name, version] = reason

    def activate(self, name: str, version: str) -> None:
        """Start new runs of a deployed graph on this version."""
        self._active[name] = version

    def is_deployed(self, program: Program[..., Any]) -> bool:
        """Whether the program was deployed to the store, not registered in this process."""
        return self._deployed.get((program.name, program.version)) is program

    def deployed(self, name: str, version: str) -> GraphProgram[..., Any]:
        """Exactly that version, as deployed. Raises `UnreadableProgram`."""
        found = self._deployed.get((name, version))
        if found is None:
            raise self._not_read(name, version)
        return found

    def digests(self) -> set[str]:
        """Digests of all readable deployed graphs."""
        return {program.digest for program in self._deployed.values()}

    def has(self, name: str, version: str) -> bool:
        """Whether exactly that version is known, readable or not."""
        known = (name, version) in self._deployed or (name, version) in self._unreadable
        return known or version in versions_of("program", name)

    def find(
        self, name: str, version: str | None = None, digest: str | None = None
    ) -> Program[..., Any] | None:
        """That version if it is known, else the current one: the last registered, or the active deployed one.

        If this process and the store have different programs under one version, `digest` decides. Raises
        `UnreadableProgram` if only the store has the version and it can't be read: no other version replaces it.
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
        """The registered and the deployed program of that version, in this order."""
        known = version in versions_of("program", name)
        registered = find("program", name, version) if known else None
        found = registered, self._deployed.get((name, version))
        return [program for program in found if program is not None]

    def _not_read(self, name: str, version: str) -> UnreadableProgram:
        reason = self._unreadable.get((name, version), "it is not known here")
        return UnreadableProgram(
            f"version {version!r} of graph {name!r} is deployed, but this host can't read it: {reason}",
            "upgrade Perdure on this host: a newer version deployed the graph",
        )

    def names(self) -> list[str]:
        """Programs whose runs this process can advance: the registered ones, and deployed graphs whose tasks it has.

        Without those of which a run needed something that is unknown here.
        """
        # A copy: hosts call this from another thread.
        deployed = list(self._deployed.values())
        executable = (each.name for each in deployed if _has_all(each.tasks))
        names = {*registered_names("program"), *executable}
        if self._incomplete:
            known = self._count()
            names -= {name for name, count in list(self._incomplete.items()) if count == known}
        return sorted(names)

    def lacks_definition_of(self, name: str) -> None:
        """A run of this program needs a task or program that is unknown here: leave its runs to other processes.

        When this process gets another definition, it may advance them again.
        """
        self._incomplete[name] = self._count()

    def _count(self) -> int:
        """How many definitions this process has."""
        registered = registered_names("task"), registered_names("program")
        return sum(map(len, registered)) + len(self._deployed)


def _has_all(tasks: frozenset[str]) -> bool:
    return all(find("task", task) is not None for task in tasks)
