"""The part of a store for graphs, besides bundles: matching signals to hooks, waiting nodes, deployed programs."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Sequence
from typing import Any, Protocol

import msgspec

from perdure.core.errors import PayloadTooLarge, UnknownVersion, VersionExists
from perdure.core.ids import RunId
from perdure.core.journal.state import Status
from perdure.core.limits import MAX_NAME_LENGTH, MAX_PAYLOAD_BYTES
from perdure.core.messages import Message
from perdure.core.texts import require_storable_text
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.graphs import (
    count_from,
    delivery_from,
    deployed_from,
    hook_from,
    readiness_from,
    stored_program_from,
)
from perdure.store.rows.records import (
    DeployedProgram,
    HookRow,
    InboxRow,
    NewProgram,
    ReadinessRow,
    StoredProgram,
)
from perdure.store.rows.values import require_integer

MAX_MATCHES = 256
"""Signals matched in one transaction at most."""


class GraphTables(Protocol):
    """The interface that both databases implement."""

    async def match_hooks(self, now_ms: int, limit: int = MAX_MATCHES) -> list[Message]:
        """Commits: messages in mailboxes are readdressed to the runs and steps whose hooks wait there. GUIDs stay.

        The first message that is due goes to the hook that has waited longest; each hook gets one. Returns the
        messages with their new addresses. Two hosts never match the same message or the same hook.
        """
        ...

    async def hooks_waiting(self, run_id: RunId) -> list[HookRow]:
        """The hooks of a run that wait for a signal, in the order of steps."""
        ...

    async def readiness(self, run_id: RunId) -> list[ReadinessRow]:
        """The nodes of a run that wait for more predecessors, in the order of steps."""
        ...

    async def inbox(self, run_id: RunId) -> list[InboxRow]:
        """The values that wait for nodes of a run, in the order of steps and positions."""
        ...

    async def rebuild_index(
        self, fence: Fence, readiness: Sequence[ReadinessRow], inbox: Sequence[InboxRow]
    ) -> None:
        """Commits: exactly these nodes of the run wait, and exactly these values wait for them.

        Raises `StaleFence` if another host owns the run. Ordered after all bundles of the run submitted before.
        """
        ...

    async def statistics(self, program: str, name: str) -> list[tuple[str, Status, int]]:
        """The number of runs of a program by value of a search key, and by status."""
        ...

    async def deploy_programs(self, programs: Sequence[NewProgram], at_ms: int) -> None:
        """Commits: inactive versions of programs, all or none. Deploying the same version again changes nothing.

        Raises `VersionExists` if one of these versions was deployed with another digest.
        """
        ...

    async def activate_program(self, name: str, version: str) -> None:
        """Commits: this version is the active one of its program. Raises `UnknownVersion` if it was not deployed."""
        ...

    async def programs(self) -> list[StoredProgram]:
        """All versions of all programs, in the order of names and then of deployment."""
        ...

    async def program(self, name: str, version: str | None = None) -> StoredProgram | None:
        """A version of a program; without `version`, the active one."""
        ...

    async def deployed(
        self, known: Collection[str], name: str | None = None
    ) -> list[DeployedProgram]:
        """The versions of all programs, or of one, ordered as in `programs`; without the content of `known` digests."""
        ...


class GraphQueries(ABC):
    """The queries that are the same on both databases."""

    async def hooks_waiting(self, run_id: RunId) -> list[HookRow]:
        return [
            hook_from(row) for row in await self._fetch_graph_rows("select_waits", run_id=run_id)
        ]

    async def readiness(self, run_id: RunId) -> list[ReadinessRow]:
        return [
            readiness_from(row)
            for row in await self._fetch_graph_rows("select_readiness", run_id=run_id)
        ]

    async def inbox(self, run_id: RunId) -> list[InboxRow]:
        return [
            delivery_from(row)
            for row in await self._fetch_graph_rows("select_inbox", run_id=run_id)
        ]

    async def rebuild_index(
        self, fence: Fence, readiness: Sequence[ReadinessRow], inbox: Sequence[InboxRow]
    ) -> None:
        bundle = Bundle()
        bundle.rebuild(fence, readiness, inbox)
        await self.commit(bundle)

    async def statistics(self, program: str, name: str) -> list[tuple[str, Status, int]]:
        rows = await self._fetch_graph_rows("select_statistics", program=program, name=name)
        return [count_from(row) for row in rows]

    async def programs(self) -> list[StoredProgram]:
        rows = await self._fetch_graph_rows("select_programs", name=None, version=None)
        return [stored_program_from(row) for row in rows]

    async def program(self, name: str, version: str | None = None) -> StoredProgram | None:
        rows = await self._fetch_graph_rows("select_programs", name=name, version=version)
        found = map(stored_program_from, rows)
        return next((one for one in found if version is not None or one.is_active), None)

    async def deployed(
        self, known: Collection[str], name: str | None = None
    ) -> list[DeployedProgram]:
        digests = msgspec.json.encode(sorted(known)).decode()
        rows = await self._fetch_graph_rows("select_deployed", name=name, known=digests)
        return [deployed_from(row) for row in rows]

    async def deploy_programs(self, programs: Sequence[NewProgram], at_ms: int) -> None:
        for program in programs:
            _require_program(program)
        require_integer("at_ms", at_ms)
        # In one order, so that two hosts that deploy the same programs at once can't deadlock.
        in_order = sorted(programs, key=lambda program: (program.name, program.version))
        await self._deploy(in_order, at_ms)

    @abstractmethod
    def commit(self, bundle: Bundle) -> Awaitable[None]: ...

    @abstractmethod
    async def _fetch_graph_rows(self, name: str, /, **values: Any) -> list[Any]:
        """The rows of a statement on the graph tables, given by its name and its parameters in their order."""

    @abstractmethod
    async def _deploy(self, programs: Sequence[NewProgram], at_ms: int) -> None:
        """Commits: the versions that are not deployed yet. Calls `require_digest` for each before it commits."""


def _require_program(program: NewProgram) -> None:
    for what in ("name", "version", "digest"):
        require_storable_text(what, getattr(program, what), MAX_NAME_LENGTH)
    require_storable_text("content", program.content)
    size = len(program.content.encode())
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"version {program.version!r} of program {program.name!r} has {size:,} bytes, over the limit of "
            f"{MAX_PAYLOAD_BYTES:,}",
            "pass large data as input instead of putting it into the graph",
        )


def require_digest(program: NewProgram, stored: str) -> None:
    """Refuse a version that was deployed with another digest."""
    if stored != program.digest:
        raise VersionExists(
            f"version {program.version!r} of program {program.name!r} was deployed with digest {stored!r}, and this "
            f"one has {program.digest!r}",
            "give it another version: runs of the deployed version continue with the program they began with",
        )


def require_version(name: str, version: str, known: Collection[str]) -> None:
    """Refuse a version that was not deployed."""
    if version not in known:
        deployed = ", ".join(map(repr, known)) or "none"
        raise UnknownVersion(
            f"program {name!r} has no version {version!r} (deployed: {deployed})",
            "deploy it first, or name one of those",
        )
