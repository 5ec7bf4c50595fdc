"""The graphs that are deployed to a host's store, as far as the host has read them.

A version never changes, so the host reads each once. Which version is active may change at any time: callers that must
know it read the store; the others learn of it with the next snapshot of the store.
"""

import logging

from perdure.engine.known_programs import KnownPrograms
from perdure.store.rows.records import DeployedProgram
from perdure.store.store import Store

log = logging.getLogger("perdure.host")


class Catalogue:
    """Adds deployed graphs to a host's programs."""

    def __init__(self, store: Store, programs: KnownPrograms) -> None:
        self._store = store
        self._programs = programs
        self._deployments = 0
        """The count of deployments and activations at the last refresh, as in a snapshot; every change alters it."""
        self._missed: set[tuple[str, str]] = set()
        """Versions that the store did not have at the last refresh."""

    async def refresh(self) -> None:
        """Read all deployments."""
        found = await self._store.deployed(self._programs.digests())
        self._learn(found)
        self._missed.clear()
        self._deployments = len(found) + sum(each.activations for each in found)

    async def refresh_if_changed(self, deployments: int) -> None:
        """Read all deployments if their count in a snapshot has changed."""
        if deployments != self._deployments:
            await self.refresh()

    async def find_version(self, name: str, version: str) -> None:
        """Read all deployments if this version, of which there is a run, is unknown."""
        if self._programs.has(name, version) or (name, version) in self._missed:
            return
        await self.refresh()
        if not self._programs.has(name, version):
            self._missed.add((name, version))

    def lacks_definition_of(self, name: str) -> None:
        """A run of that program needs something that this process lacks: this host claims no more of its runs."""
        if name in self._programs.names():
            self._programs.lacks_definition_of(name)

    async def versions(self, name: str) -> list[DeployedProgram]:
        """The versions of a graph as the store has them now, in the order of their deployment."""
        found = await self._store.deployed(self._programs.digests(), name)
        self._learn(found)
        return found

    def _learn(self, found: list[DeployedProgram]) -> None:
        for each in found:
            if each.content is not None:
                self._read(each, each.content)
            if each.is_active:
                self._programs.activate(each.name, each.version)

    def _read(self, deployed: DeployedProgram, content: str) -> None:
        """Add a deployed graph. One that can't be read is logged once, and its runs are parked."""
        name, version = deployed.name, deployed.version
        reason = self._programs.read(name, version, deployed.digest, content)
        if reason is None:
            return
        if not self._programs.has(name, version):
            log.error("version %r of graph %r can't be read: %s", version, name, reason)
        self._programs.add_unreadable(name, version, reason)
