"""Backs up a SQLite store while engines work on it: a consistent copy that is verified before it gets its name."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from perdure.core.errors import InputError, StoreDamaged
from perdure.store.inspection import Inspection, Report, audit_store, verify_store
from perdure.store.opening import open_store, sqlite_path
from perdure.store.sqlite.connections.copying import Copying

_POLL_S = 0.2

OnPages = Callable[[int, int], None]
"""Called with the pages copied so far, and the pages of the store."""


async def back_up(
    url: str, to: Path, on_pages: OnPages, on_run: Callable[[Inspection], None]
) -> Report:
    """Copy the store to a new file. Returns the verification of the copy, which is clean.

    Raises `StoreDamaged` if the copy is not sound; then there is no file.
    """
    path = sqlite_path(url)
    if path is None:
        raise InputError(
            "a Postgres store is not copied by Perdure",
            "use pg_dump --schema=perdure, which takes one consistent snapshot",
        )
    # Refuses what is no store, and makes sure that there is one to copy.
    await (await open_store(url, as_it_is=True)).close()
    copying = Copying(path, to)
    try:
        await _copy(copying, on_pages)
        report = await _check(f"sqlite:///{copying.partial}", on_run)
        if not report.is_clean:
            raise StoreDamaged(f"the copy is not sound: {report}", "audit the store itself")
        copying.publish()
    finally:
        copying.close()
    return report


async def _copy(copying: Copying, on_pages: OnPages) -> None:
    pages = copying.pages
    job = asyncio.create_task(asyncio.to_thread(copying.copy))
    try:
        while not job.done():
            await asyncio.wait([job], timeout=_POLL_S)
            on_pages(min(pages, copying.pages_copied), pages)
    finally:
        if not job.done():
            copying.stop()
            await asyncio.wait([job])
    await job


async def _check(url: str, on_run: Callable[[Inspection], None]) -> Report:
    store = await open_store(url, as_it_is=True)
    try:
        report = await verify_store(store, on_run=on_run)
        report.findings += (await audit_store(store)).findings
        return report
    finally:
        await store.close()
