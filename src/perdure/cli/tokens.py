"""`perdure token`: the tokens of the HTTP API; and `perdure audit-log`."""

import asyncio
import getpass
import re
from typing import Annotated

from cyclopts import Parameter

from perdure import InputError
from perdure.api.doors.tokens import TokenWish, new_token
from perdure.cli.output import Column, FormatOption, cell, console, moment, print_values
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.host.clock import HostSources
from perdure.store.access_table import NEWEST_RECORD, AuditRecord, TokenRow, record_id
from perdure.store.store import Store

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

LabelArgument = Annotated[str, Parameter(help="What the token is for.")]
TokenArgument = Annotated[
    str, Parameter(help="The id of a token, as `perdure token list` shows it.")
]
ExpiresOption = Annotated[
    str | None, Parameter(help="How long the token is valid, such as 90d. Default: for ever.")
]


def create_token(
    label: LabelArgument,
    /,
    *,
    role: str = "viewer",
    scope: str | None = None,
    expires: ExpiresOption = None,
    store: StoreOption = None,
) -> int:
    """Make a token, and print it. It is shown this once.

    Parameters
    ----------
    role
        What its bearer may do: viewer, operator, engineer or admin.
    scope
        Whose runs its bearer may see: those of this scope and those below it. Default: all.
    """
    sources = HostSources()
    wish = TokenWish(label=label, role=role, scope=scope, expires_in=_seconds(expires))
    made = new_token(wish, sources.now_ms(), sources.entropy)

    async def write() -> None:
        async with existing_store(store) as opened:
            await opened.access.add_token(made.row)
            await _record(opened, "token.create", made.row.id)

    asyncio.run(write())
    print(made.text)
    return 0


def list_tokens(*, store: StoreOption = None, output: FormatOption = "table") -> int:
    """List the tokens, without their secrets."""

    async def read() -> list[TokenRow]:
        async with existing_store(store) as opened:
            return await opened.access.tokens()

    tokens = asyncio.run(read())
    now_ms = HostSources().now_ms()
    columns: list[Column[TokenRow]] = [
        Column("id", lambda token: cell(token.id)),
        Column("label", lambda token: cell(token.label), is_cut=True),
        Column("role", lambda token: cell(token.role)),
        Column("scope", lambda token: cell("all" if token.scope is None else token.scope)),
        Column("created", lambda token: moment(token.created_at_ms)),
        Column("state", lambda token: cell(_state(token, now_ms))),
    ]
    shown = [_without_hash(token) for token in tokens]
    print_values(shown, output, columns, lambda token: token.id)
    return 0


def revoke(token: TokenArgument, /, *, store: StoreOption = None) -> int:
    """Revoke a token: within a second it lets its bearer in no more."""

    async def write() -> bool:
        async with existing_store(store) as opened:
            is_revoked = await opened.access.revoke_token(token, HostSources().now_ms())
            if is_revoked:
                await _record(opened, "token.revoke", token)
            return is_revoked

    if not asyncio.run(write()):
        raise InputError(f"there is no valid token {token!r}", "see 'perdure token list'")
    console().print(f"revoked {token}", soft_wrap=True)
    return 0


def audit_log(
    *,
    limit: int = 50,
    actor: str | None = None,
    action: str | None = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> int:
    """List what was asked over the HTTP API, and by whom; the newest first.

    Parameters
    ----------
    limit
        How many records.
    actor
        Only what this actor asked for.
    action
        Only this action, such as CANCEL or token.create.
    """
    if not 1 <= limit <= 100_000:
        raise InputError(f"--limit is {limit}", "pass a number from 1 to 100000")

    async def read() -> list[AuditRecord]:
        async with existing_store(store) as opened:
            return await opened.access.records(NEWEST_RECORD, limit, actor, action)

    columns: list[Column[AuditRecord]] = [
        Column("at", lambda record: moment(record.at_ms)),
        Column("actor", lambda record: cell(record.actor)),
        Column("role", lambda record: cell(record.role)),
        Column("action", lambda record: cell(record.action)),
        Column("target", lambda record: cell(record.target)),
        Column("outcome", lambda record: cell(record.outcome)),
        Column("reason", lambda record: cell(record.reason), is_cut=True),
    ]
    print_values(asyncio.run(read()), output, columns, lambda record: record.id)
    return 0


async def _record(store: Store, action: str, target: str) -> None:
    sources = HostSources()
    now_ms = sources.now_ms()
    record = AuditRecord(
        id=record_id(now_ms, sources.entropy(8)),
        at_ms=now_ms,
        actor=getpass.getuser(),
        role="admin",
        action=action,
        target=target,
        scope="",
        reason="",
        outcome="accepted",
    )
    await store.access.record(record)


def _without_hash(token: TokenRow) -> TokenRow:
    return TokenRow(**{**{n: getattr(token, n) for n in token.__struct_fields__}, "hash": b""})


def _state(token: TokenRow, now_ms: int) -> str:
    if token.revoked_at_ms is not None:
        return "revoked"
    if token.expires_at_ms is None:
        return "valid"
    is_over = token.expires_at_ms <= now_ms
    return f"{'expired' if is_over else 'valid until'} {moment(token.expires_at_ms)}"


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    found = _SPAN.fullmatch(text)
    if found is None:
        raise InputError(f"--expires {text}", "write a time such as 12h, 90d or 4w")
    return float(found[1]) * _SECONDS[found[2]]
