"""The ledger that a command was given, and the operation in it."""

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
async def opened(place: str, staleness_s: float = STALENESS_S) -> AsyncIterator[Ledger]:
    """The ledger of a directory or a store that exists. Nothing is made where there is none."""
    settings = settings_of(staleness_s)
    if "://" in place:
        await _require_store(place)
        ledger = Ledger(store=place, settings=settings)
    else:
        _require_directory(place)
        ledger = Ledger(place, settings=settings)
    async with ledger:
        yield ledger


async def named(ledger: Ledger, text: str) -> str:
    """The id that `text` is, or is part of: of the operations under way, else of those in backup."""
    # In this order: an operation may move to the backups in between, and never back.
    places = [await ledger.operation_ids(), await ledger.operation_ids(backups=True)]
    if any(text in ids for ids in places):
        return text
    for ids in places:
        found = [one for one in ids if text and text in one]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(
                f"{text!r} is part of {len(found)} ids", f"pass one of {', '.join(found[-5:])}"
            )
    raise UnknownOperation(
        f"there is no operation {text!r}", "see those that there are: perdure op list --all"
    )


def _require_directory(place: str) -> None:
    path = Path(place)
    if path.is_dir():
        return
    if path.exists():
        raise InputError(f"{place!r} is not a directory", _FORMS)
    raise InputError(f"there is no directory {place!r}", _FORMS)


async def _require_store(url: str) -> None:
    """Opening a ledger would make a store where there is none, and migrate an old one."""
    store = await open_store(url, as_it_is=True)
    await store.close()


def shown(place: str) -> str:
    """The place as a word of a command line, without a password."""
    has_password = "://" in place and urlsplit(place).password is not None
    return "URL" if has_password else shlex.quote(place)


def settings_of(staleness_s: float) -> LedgerSettings:
    """Settings in which everything is as long, beside the threshold, as it is by default."""
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
