"""Opens the ledger that a command names, and finds an operation in it."""

import math
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from perdure.core.errors import InputError, UnknownOperation
from perdure.operations import Ledger, LedgerSettings
from perdure.store.opening import open_store

STALENESS_S = LedgerSettings().staleness

_FORMS = (
    "pass the directory that the participants use, or the URL of their store: "
    "'sqlite:////absolute/path.db', 'postgresql://user@host/database'"
)


@asynccontextmanager
async def open_ledger(ledger_name: str, staleness_s: float = STALENESS_S) -> AsyncIterator[Ledger]:
    """Opens the ledger of an existing directory or store; creates neither."""
    settings = settings_of(staleness_s)
    if "://" in ledger_name:
        await _require_store(ledger_name)
        ledger = Ledger(store=ledger_name, settings=settings)
    else:
        _require_directory(ledger_name)
        ledger = Ledger(ledger_name, settings=settings)
    async with ledger:
        yield ledger


async def find_operation_id(ledger: Ledger, text: str) -> str:
    """The operation id that `text` is, or is a unique part of; current operations go before backups."""
    # This order finds an operation that moves to the backups in between; it never moves back.
    id_lists = [await ledger.operation_ids(), await ledger.operation_ids(backups=True)]
    if any(text in ids for ids in id_lists):
        return text
    for ids in id_lists:
        found = [candidate for candidate in ids if text and text in candidate]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(
                f"{text!r} matches {len(found)} operation ids",
                f"pass one of {', '.join(found[-5:])}",
            )
    raise UnknownOperation(
        f"there is no operation {text!r}", "list the operations with: perdure op list --all LEDGER"
    )


def _require_directory(ledger_name: str) -> None:
    path = Path(ledger_name)
    if path.is_dir():
        return
    if path.exists():
        raise InputError(f"{ledger_name!r} is not a directory", _FORMS)
    raise InputError(f"there is no directory {ledger_name!r}", _FORMS)


async def _require_store(url: str) -> None:
    """Raises if the store does not exist or has an old schema, which opening a ledger would create or migrate."""
    store = await open_store(url, as_it_is=True)
    await store.close()


def ledger_argument(ledger_name: str) -> str:
    """The ledger argument, quoted for a command line; `URL` if it contains a password."""
    has_password = "://" in ledger_name and urlsplit(ledger_name).password is not None
    return "URL" if has_password else shlex.quote(ledger_name)


def settings_of(staleness_s: float) -> LedgerSettings:
    """Settings whose other intervals keep their default proportion to the staleness threshold."""
    if not 0 < staleness_s < math.inf:
        raise InputError(f"--staleness is {staleness_s:g}", "pass seconds, more than 0")
    return LedgerSettings(
        heartbeat_shortest=0.4 * staleness_s,
        heartbeat_longest=0.5 * staleness_s,
        look_every=0.1 * staleness_s,
        staleness=staleness_s,
        notice=staleness_s,
        self_cleanup=staleness_s,
        backup_delay=staleness_s,
    )
