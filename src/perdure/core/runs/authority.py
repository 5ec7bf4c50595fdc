"""Who may act on runs: the authorizer of an engine decides before an act is sent."""

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


class Authorizer(Protocol):
    """Decides who may act. Belongs to the engine that sends the act."""

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


class Roles:
    """Decides by the actor's role. Acts that only an admin may do need a reason."""

    async def decide(self, act: Act, actor: Actor, run: ActedRun, reason: str) -> str | None:  # noqa: ARG002 - as the protocol says
        if act.type not in ROLES.get(actor.role, frozenset()):
            return Code.DENIED
        return Code.REASON_REQUIRED if act.type in _ADMIN_ONLY and not reason.strip() else None
