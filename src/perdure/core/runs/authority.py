"""Who may act on runs: the authorizer of an engine decides before an act is sent."""

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from perdure.core.ids import RunId
from perdure.core.journal.events import ActType
from perdure.core.runs.acts import Act, Actor, Code


class ActedRun(msgspec.Struct, frozen=True):
    """The run that an act is for."""

    run_id: RunId
    program: str
    version: str
    scope: str
    key: str | None
    status: str


class Permission(StrEnum):
    """What a caller may ask of an engine besides acts on runs."""

    READ = "read"
    START = "start"
    """Start runs."""

    SEND = "send"
    """Send signals, and answers of steps."""

    ACT = "act"
    """Send acts to runs: the authorizer decides on each type."""

    SCHEDULE = "schedule"
    """Pause, resume and trigger schedules."""

    MEND = "mend"
    """Retry and skip steps, fork runs, backfill and delete schedules, check code against open runs."""

    ADMINISTER = "administer"
    """Read with SQL, read the audit log, make and revoke tokens."""


class Authorizer(Protocol):
    """Decides who may act. Belongs to the engine that sends the act.

    If it also has a method `permits(permission, actor)`, which returns as `decide` does, that decides who may ask for
    anything else over HTTP; without one, `Roles` does.
    """

    async def decide(self, act: Act, actor: Actor, run: ActedRun, reason: str) -> str | None:
        """`None` to accept the act, or the code of the denial, such as `"AUTHZ_DENIED"`."""
        ...


class AllowAll:
    """Every actor may do everything: for an engine whose callers are trusted."""

    async def decide(self, act: Act, actor: Actor, run: ActedRun, reason: str) -> str | None:  # noqa: ARG002 - as the protocol says
        return None


_OPERATOR: Final = frozenset((ActType.PAUSE, ActType.RESUME, ActType.CANCEL, ActType.APPROVE))
_ENGINEER: Final = _OPERATOR | {
    ActType.RETRY_STEP,
    ActType.SKIP_STEP,
    ActType.RETRY_RUN,
    ActType.FORK,
}
_ADMIN_ONLY: Final = frozenset((ActType.UPDATE_PARAMS, ActType.EMERGENCY_STOP))

ROLES: Final[dict[str, frozenset[ActType]]] = {
    "viewer": frozenset(),
    "operator": _OPERATOR,
    "engineer": _ENGINEER,
    "admin": _ENGINEER | _ADMIN_ONLY,
}
"""The acts that each role may do."""


_OF_OPERATOR: Final = frozenset(
    (
        *(Permission.READ, Permission.START, Permission.SEND),
        *(Permission.ACT, Permission.SCHEDULE),
    )
)

PERMISSIONS: Final[dict[str, frozenset[Permission]]] = {
    "viewer": frozenset((Permission.READ,)),
    "operator": _OF_OPERATOR,
    "engineer": _OF_OPERATOR | {Permission.MEND},
    "admin": frozenset(Permission),
}
"""What each role may ask for besides acts."""


class Roles:
    """Decides by the actor's role. Acts that only an admin may do need a reason."""

    def permits(self, permission: Permission, actor: Actor) -> str | None:
        """`None` if the actor's role has the permission, or the code of the denial."""
        return None if permission in PERMISSIONS.get(actor.role, frozenset()) else Code.DENIED

    async def decide(self, act: Act, actor: Actor, run: ActedRun, reason: str) -> str | None:  # noqa: ARG002 - as the protocol says
        if act.type not in ROLES.get(actor.role, frozenset()):
            return Code.DENIED
        return Code.REASON_REQUIRED if act.type in _ADMIN_ONLY and not reason.strip() else None
