"""What a store offers to graphs, beside bundles: signals to those who wait, what waits in a run, deployed programs."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Sequence
from typing import Any, Protocol

import msgspec

from perdure.core.errors import PayloadTooLarge, UnknownVersion, VersionExists
from perdure.core.ids import RunId
from perdure.core.journal.state import Status
from perdure.core.limits import MAX_NAME_LENGTH, MAX_PAYLOAD_BYTES
from perdure.core.messages import Message
from perdure.core.texts import require_text
from perdure.store.bundle import Bundle
from perdure.store.graph_rows import (
    count_from,
    delivery_from,
    deployed_from,
    hook_from,
    program_from,
    readiness_from,
)
from perdure.store.primitives import Fence
from perdure.store.records import Delivery, Deployed, Hook, NewProgram, Program, Readiness
from perdure.store.values import require_integer

MATCHES = 256
"""Signals that are matched at once."""


class GraphTables(Protocol):
    """What both databases offer."""

    async def match_hooks(self, now_ms: int, limit: int = MATCHES) -> list[Message]:
        """Commits: messages to mailboxes are those of the runs and steps that wait there, under the same GUIDs.

        The first message that is due goes to whoever waits longest, and a hook gets one. Returns the messages as they
        are now. Two hosts never match the same message or the same hook.
        """
        ...

    async def hooks_waiting(self, run_id: RunId) -> list[Hook]:
        """The hooks of a run that wait for a signal, in the order of steps."""
        ...

    async def readiness(self, run_id: RunId) -> list[Readiness]:
        """The nodes of a run that wait for more predecessors, in the order of steps."""
        ...

    async def inbox(self, run_id: RunId) -> list[Delivery]:
        """The values that wait for nodes of a run, in the order of steps and positions."""
        ...

    async def rebuild_index(
        self, fence: Fence, readiness: Sequence[Readiness], inbox: Sequence[Delivery]
    ) -> None:
        """Commits: these nodes of the run wait, and these values for them, and no others.

        Raises `StaleFence` if the run is somebody else's. After every bundle of the run that was taken in before.
        """
        ...

    async def statistics(self, program: str, name: str) -> list[tuple[str, Status, int]]:
        """How many runs of a program have each value of a search key, by status."""
        ...

    async def deploy_programs(self, programs: Sequence[NewProgram], at_ms: int) -> None:
        """Commits: versions of programs, which are not active yet, all or none. The same again changes nothing.

        Raises `VersionExists` if one of those versions has another digest.
        """
        ...

    async def activate_program(self, name: str, version: str) -> None:
        """Commits: this version is active, and no other one is. Raises `UnknownVersion` if it was not deployed."""
        ...

    async def programs(self) -> list[Program]:
        """All versions of all programs, in the order of names and then of deployment."""
        ...

    async def program(self, name: str, version: str | None = None) -> Program | None:
        """A version of a program; the active one, if none is named."""
        ...

    async def deployed(self, known: Collection[str], name: str | None = None) -> list[Deployed]:
        """The versions of all programs, or of one, in the same order; without the content of `known` digests."""
        ...


class GraphQueries(ABC):
    """What is the same on both databases. `_ask` reads the rows of a statement on the tables of graphs."""

    async def hooks_waiting(self, run_id: RunId) -> list[Hook]:
        return [hook_from(row) for row in await self._ask("select_waits", run_id=run_id)]

    async def readiness(self, run_id: RunId) -> list[Readiness]:
        return [readiness_from(row) for row in await self._ask("select_readiness", run_id=run_id)]

    async def inbox(self, run_id: RunId) -> list[Delivery]:
        return [delivery_from(row) for row in await self._ask("select_inbox", run_id=run_id)]

    async def rebuild_index(
        self, fence: Fence, readiness: Sequence[Readiness], inbox: Sequence[Delivery]
    ) -> None:
        bundle = Bundle()
        bundle.rebuild(fence, readiness, inbox)
        await self.commit(bundle)

    async def statistics(self, program: str, name: str) -> list[tuple[str, Status, int]]:
        rows = await self._ask("select_statistics", program=program, name=name)
        return [count_from(row) for row in rows]

    async def programs(self) -> list[Program]:
        rows = await self._ask("select_programs", name=None, version=None)
        return [program_from(row) for row in rows]

    async def program(self, name: str, version: str | None = None) -> Program | None:
        rows = await self._ask("select_programs", name=name, version=version)
        found = map(program_from, rows)
        return next((one for one in found if version is not None or one.is_active), None)

    async def deployed(self, known: Collection[str], name: str | None = None) -> list[Deployed]:
        digests = msgspec.json.encode(sorted(known)).decode()
        rows = await self._ask("select_deployed", name=name, known=digests)
        return [deployed_from(row) for row in rows]

    async def deploy_programs(self, programs: Sequence[NewProgram], at_ms: int) -> None:
        for program in programs:
            _require_program(program)
        require_integer("at_ms", at_ms)
        # In one order, so that two who deploy the same at once never wait for each other.
        in_order = sorted(programs, key=lambda program: (program.name, program.version))
        await self._deploy(in_order, at_ms)

    @abstractmethod
    def commit(self, bundle: Bundle) -> Awaitable[None]: ...

    @abstractmethod
    async def _ask(self, name: str, /, **values: Any) -> list[Any]:
        """The rows of a statement, by its name and its parameters in their order."""

    @abstractmethod
    async def _deploy(self, programs: Sequence[NewProgram], at_ms: int) -> None:
        """Commits: those versions that are not there. `require_digest` of each, before anything is committed."""


def _require_program(program: NewProgram) -> None:
    for what in ("name", "version", "digest"):
        require_text(what, getattr(program, what), MAX_NAME_LENGTH)
    require_text("content", program.content)
    size = len(program.content.encode())
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"version {program.version!r} of program {program.name!r} has {size:,} bytes, over the limit of "
            f"{MAX_PAYLOAD_BYTES:,}",
            "take out of the graph what it can be given as input",
        )


def require_digest(program: NewProgram, stored: str) -> None:
    """Refuse a version that is there and is another program."""
    if stored != program.digest:
        raise VersionExists(
            f"version {program.version!r} of program {program.name!r} was deployed with digest {stored!r}, and this "
            f"one has {program.digest!r}",
            "give it another version: runs of that one go on with what they began with",
        )


def require_version(name: str, version: str, known: Collection[str]) -> None:
    """Refuse a version that was not deployed."""
    if version not in known:
        deployed = ", ".join(map(repr, known)) or "none"
        raise UnknownVersion(
            f"program {name!r} has no version {version!r} (deployed: {deployed})",
            "deploy it first, or name one of those",
        )
