"""`perdure move`: all runs, open ones included, from one store to another."""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.output import console
from perdure.cli.progress import ProgressLine
from perdure.client.hosts import host_list
from perdure.core.errors import InputError, StoreDamaged, StoreMoved
from perdure.host.clock import HostSources
from perdure.store.inspection import audit_store, verify_store
from perdure.store.moving import Moved, abandon_move, move_store, open_movable
from perdure.store.opening import open_store, without_password
from perdure.store.rows.moving import DeadHosts
from perdure.store.store import Store

AbandonOption = Annotated[
    bool,
    Parameter(help="Give up a move that has not ended, and let engines use FROM again."),
]


def move(from_: str, to: str, /, *, abandon: AbandonOption = False) -> int:
    """Move all runs to another store, open ones included: SQLite to Postgres, or back.

    Stop all engines on FROM first. It is frozen, copied, compared row by row and verified; then engines can use TO, and
    are refused by FROM, which stays as it is. If the command is killed, run it again: it resumes.

    Parameters
    ----------
    from_
        URL of the store to move.
    to
        URL of an empty or new store.
    """
    if abandon:
        asyncio.run(_abandoned(from_))
        console().print(f"{without_password(from_)}: engines can use it again", soft_wrap=True)
        return 0
    moved, rate = asyncio.run(_moved(from_, to))
    screen = console()
    counted = f"runs {moved.report.runs:,}, entries {moved.report.entries:,}, rows {moved.rows:,}"
    screen.print(f"moved and verified: {counted} ({rate:,.0f} rows a second)", soft_wrap=True)
    screen.print(f"use {without_password(to)} from now on", soft_wrap=True)
    return 0


async def _moved(from_: str, to: str) -> tuple[Moved, float]:
    dead = await _ready_source(from_)
    await _ready_target(to)
    source, target = await open_movable(from_), await open_movable(to)
    try:
        if source.name == target.name:
            raise InputError(f"{source.name} is both stores", "pass two stores")
        sources = HostSources()
        move_id = sources.entropy(8).hex()
        with ProgressLine("copy, rows") as copied, ProgressLine("compare, rows") as compared:
            bars = {"copy": copied, "compare": compared}
            moved = await move_store(
                source,
                target,
                to,
                move_id,
                dead,
                lambda what, done, total: bars[what].reach(done, total),
            )
            return moved, copied.rate
    finally:
        await source.close()
        await target.close()


async def _ready_source(url: str) -> DeadHosts:
    """Checks the store and its hosts. A store that is frozen by an earlier move was checked then."""
    now_ms = HostSources().now_ms()
    try:
        store = await open_store(url, as_it_is=True)
    except StoreMoved:
        return DeadHosts({}, now_ms)
    try:
        hosts = await host_list(store)
        alive = [host for host in hosts if host.is_alive]
        if alive:
            runs = sum(host.open_runs for host in alive)
            raise InputError(
                f"{store.name} has {len(alive)} live hosts, which own {runs} open runs",
                "stop them, and move the store then; `perdure hosts` lists them",
            )
        await _require_sound(store)
        beats = {row.host: row.beat for row in await store.host_rows() if row.beat is not None}
        return DeadHosts(beats, now_ms)
    finally:
        await store.close()


async def _require_sound(store: Store) -> None:
    with ProgressLine("verify, runs", 2 * await store.count_all_runs()) as progress:
        for inspect in (verify_store, audit_store):
            report = await inspect(store, on_run=lambda _: progress.advance())
            if not report.is_clean:
                raise StoreDamaged(
                    f"the store is not sound: {report}", "restore it from a backup before moving it"
                )


async def _ready_target(url: str) -> None:
    """Creates the store if it is new."""
    try:
        store = await open_store(url)
    except StoreMoved:
        return  # an earlier process has begun to fill it
    try:
        alive = [host for host in await host_list(store) if host.is_alive]
        if alive:
            raise InputError(f"{store.name} has {len(alive)} live hosts", "stop them first")
    finally:
        await store.close()


async def _abandoned(url: str) -> None:
    try:
        await (await open_store(url, as_it_is=True)).close()
    except StoreMoved:
        source = await open_movable(url)
        try:
            await abandon_move(source)
        finally:
            await source.close()
        return
    raise InputError(f"{without_password(url)} is not being moved", "there is nothing to abandon")
