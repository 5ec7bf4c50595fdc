"""Tokens of the HTTP API and its audit log, as both databases keep them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

NEWEST_RECORD: Final = "g"
"""Greater than the id of any record of the audit log."""


class TokenRow(msgspec.Struct, frozen=True):
    """A token as stored: the hash of its secret, never the secret. `scope` is `None` for all scopes."""

    id: str
    hash: bytes
    label: str
    role: str
    scope: str | None
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None = None


class AuditRecord(msgspec.Struct, frozen=True):
    """What was asked for, by whom, and what became of it: `accepted`, or the code of the refusal."""

    id: str
    at_ms: int
    actor: str
    role: str
    action: str
    target: str
    scope: str
    reason: str
    outcome: str


def record_id(now_ms: int, entropy: bytes) -> str:
    """The id of a record: later records sort later."""
    return f"{now_ms:016x}{entropy.hex()}"


class AccessTable(Protocol):
    """The interface that both databases implement. Each write is a transaction of its own."""

    async def add_token(self, token: TokenRow) -> None:
        """Commits: a new token."""
        ...

    async def revoke_token(self, token_id: str, now_ms: int) -> bool:
        """Commits: the token is revoked. False if there is none, or it is revoked already."""
        ...

    async def tokens(self) -> list[TokenRow]:
        """All tokens, the newest first."""
        ...

    async def token(self, token_id: str) -> TokenRow | None: ...

    async def has_tokens(self) -> bool:
        """Whether a token was ever made, revoked ones included."""
        ...

    async def record(self, record: AuditRecord) -> None:
        """Commits: one record of the audit log."""
        ...

    async def records(
        self, before: str, limit: int, actor: str | None = None, action: str | None = None
    ) -> list[AuditRecord]:
        """The records before that id, the newest first."""
        ...


class AccessQueries(ABC):
    """The table, over one method that executes a named statement and commits it."""

    async def add_token(self, token: TokenRow) -> None:
        await self._write("insert_token", msgspec.structs.asdict(token))

    async def revoke_token(self, token_id: str, now_ms: int) -> bool:
        return bool(await self._write("revoke_token", {"now_ms": now_ms, "id": token_id}))

    async def tokens(self) -> list[TokenRow]:
        return [_token_from(row) for row in await self._fetch("select_tokens", {})]

    async def token(self, token_id: str) -> TokenRow | None:
        rows = await self._fetch("select_token", {"id": token_id})
        return _token_from(rows[0]) if rows else None

    async def has_tokens(self) -> bool:
        ((found,),) = await self._fetch("has_tokens", {})
        return bool(found)

    async def record(self, record: AuditRecord) -> None:
        await self._write("insert_record", msgspec.structs.asdict(record))

    async def records(
        self, before: str, limit: int, actor: str | None = None, action: str | None = None
    ) -> list[AuditRecord]:
        values = {"before": before, "actor": actor, "action": action, "limit": limit}
        return [AuditRecord(*row) for row in await self._fetch("select_records", values)]

    @abstractmethod
    async def _write(self, name: str, values: dict[str, Any]) -> Sequence[Any]: ...

    @abstractmethod
    async def _fetch(self, name: str, values: dict[str, Any]) -> Sequence[Any]: ...


def _token_from(row: Sequence[Any]) -> TokenRow:
    token_id, digest, *rest = row
    return TokenRow(token_id, bytes(digest), *rest)
