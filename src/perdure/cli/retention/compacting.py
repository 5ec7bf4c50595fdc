"""`perdure store compact`: free space of the store goes back to the disk."""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from perdure import InputError
from perdure.cli.exit_codes import FAILED
from perdure.cli.front_end import front_end
from perdure.cli.output import console
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.client.retention import SCRUBBED_BYTES


def compact(
    *,
    quick: Annotated[
        bool, Parameter(help="Only what no host waits for: the files may keep deleted data.")
    ] = False,
    yes: Annotated[
        bool, Parameter(help="Also while hosts are open, though they wait for a large file.")
    ] = False,
    store: StoreOption = None,
) -> int:
    """Rewrite the store without free space: then its files hold nothing that was deleted.

    On SQLite every commit waits meanwhile, and the disk needs room for two more copies of the file. On Postgres one
    table after the other is locked.
    """
    return asyncio.run(_compacted(full=not quick, url=store, waits=yes))


async def _compacted(*, full: bool, url: str | None, waits: bool) -> int:
    async with existing_store(url) as store:
        before = await store.retention.size()
        hosts = [host for host in await store.host_rows() if host.beat is not None]
    if full and hosts and not waits and (before is None or before > SCRUBBED_BYTES):
        raise InputError(
            f"{len(hosts)} hosts are on the store, and would wait until it is rewritten",
            "stop them, or pass --yes, or --quick",
        )
    async with front_end(url) as engine:
        is_done = await engine.retention.compact(full=full)
    async with existing_store(url) as store:
        after = await store.retention.size()
    if before is not None and after is not None:
        console().print(f"{before / 1e6:,.1f} MB, now {after / 1e6:,.1f} MB", soft_wrap=True)
    if not is_done:
        console(is_error=True).print(
            "a program reads from the store: its log is emptied later; repeat the command",
            soft_wrap=True,
        )
    return 0 if is_done else FAILED
