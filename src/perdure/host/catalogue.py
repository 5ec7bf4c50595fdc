"""What is deployed to a host's store, as the host knows it.

A version never changes, so each is read once. Which one is active may change at any time, and whoever must know asks
the store; others learn of it with the next glance.
"""

import logging

from perdure.authoring.graphs.program import program_from
from perdure.engine.programs import Programs
from perdure.store.records import Deployed
from perdure.store.store import Store

log = logging.getLogger("perdure.host")


class Catalogue:
    """Brings deployed graphs into a host's programs."""

    def __init__(self, store: Store, programs: Programs) -> None:
        self._store = store
        self._programs = programs
        self._deployments = 0
        """Of the last look, as a glance counts them: every change makes it another number."""
        self._missed: set[tuple[str, str]] = set()
        """Versions that were asked for and are not there."""

    async def look(self) -> None:
        """Read what is deployed."""
        found = await self._store.deployed(self._programs.digests())
        self._learn(found)
        self._missed.clear()
        self._deployments = len(found) + sum(each.activations for each in found)

    async def look_if_changed(self, deployments: int) -> None:
        """The same, if a glance says that something is new."""
        if deployments != self._deployments:
            await self.look()

    async def look_for(self, name: str, version: str) -> None:
        """Read what is deployed if just that version is not known: somebody has a run of it."""
        if self._programs.has(name, version) or (name, version) in self._missed:
            return
        await self.look()
        if not self._programs.has(name, version):
            self._missed.add((name, version))

    def claims(self, name: str) -> bool:
        """Whether this host takes up runs of that name."""
        return name in self._programs.names()

    async def versions(self, name: str) -> list[Deployed]:
        """The versions of a graph as the store has them now, in the order of their deployment."""
        found = await self._store.deployed(self._programs.digests(), name)
        self._learn(found)
        return found

    def _learn(self, found: list[Deployed]) -> None:
        for each in found:
            if each.content is not None:
                self._read(each, each.content)
            if each.is_active:
                self._programs.activate(each.name, each.version)

    def _read(self, deployed: Deployed, content: str) -> None:
        """What can't be read is reported once, and nothing else comes of it: its runs are parked."""
        name, version = deployed.name, deployed.version
        reason = "it says more than this Perdure knows of"
        try:
            program = program_from(content.encode())
        except Exception as error:  # a newer Perdure may have written anything
            reason = f"{type(error).__name__}: {error}"
        else:
            # What is not known is left out when it is read: written again it is not what it was.
            about = program.name, program.version, program.digest, program.content.decode()
            if about == (name, version, deployed.digest, content):
                self._programs.add(program)
                return
        if not self._programs.has(name, version):
            log.error("version %r of graph %r can't be read: %s", version, name, reason)
        self._programs.add_unreadable(name, version, reason)
