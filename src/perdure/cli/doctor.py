"""`perdure doctor`: versions, compiled parts, the store, its clock and its disk."""

import asyncio
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from rich.text import Text

from perdure.cli.exit_codes import FAILED
from perdure.cli.output import Column, ReportOption, console, plain, print_json, table_of
from perdure.cli.store_setting import StoreOption, existing_store, store_url
from perdure.client.hosts import host_list
from perdure.core.errors import InputError, PerdureError
from perdure.host.clock import HostSources
from perdure.store.diagnosis import diagnose, installed_parts
from perdure.store.opening import without_password
from perdure.store.rows.readings import Reading

FEW_FILES = 1024
"""A limit of open files below which a host with many connections may fail."""


def doctor(*, store: StoreOption = None, output: ReportOption = "table") -> int:
    """Check this installation, and the store if one is named. The exit code is 1 if something is wrong."""
    readings = [*_installation(), *installed_parts(), _open_files()]
    try:
        url = store_url(store)
    except InputError:
        if store is not None:
            raise
        readings.append(Reading("store", "none is named: pass --store to check it"))
    else:
        readings += asyncio.run(_store(url))
    if output == "json":
        print_json([plain(reading._asdict()) for reading in readings])
    else:
        screen = console()
        screen.print(table_of(readings, _COLUMNS))
        for reading in readings:
            if reading.problem:
                screen.print(f"{reading.what}: {reading.problem}", style="red", soft_wrap=True)
    return FAILED if any(reading.problem for reading in readings) else 0


def _mark(reading: Reading) -> Text:
    return Text("!", style="bold red") if reading.problem else Text("✓", style="green")


_COLUMNS: list[Column[Reading]] = [
    Column("", _mark),
    Column("check", lambda reading: reading.what),
    Column("value", lambda reading: reading.value),
]


def _installation() -> list[Reading]:
    names = ("msgspec", "asyncpg", "cyclopts", "rich", "ruamel.yaml")
    return [
        Reading("Perdure", version("perdure")),
        Reading("Python", f"{platform.python_version()} ({sys.executable})"),
        Reading("platform", platform.platform()),
        *(Reading(name, _version(name)) for name in names),
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _open_files() -> Reading:
    import resource  # noqa: PLC0415 - not on every system

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    problem = f"raise it: ulimit -n {min(hard, 65536)}" if soft < FEW_FILES else None
    return Reading("open files", f"{soft} at most", problem)


async def _store(url: str) -> list[Reading]:
    name = Reading("store", without_password(url))
    try:
        async with existing_store(
            url
        ) as store:  # first, because it refuses a file that is not there
            readings = await diagnose(url, HostSources().now_ms)
            open_runs, runs = await store.count_open_runs(), await store.count_all_runs()
            hosts = await host_list(store)
    except PerdureError as error:
        return [name._replace(problem=str(error))]
    dead = [host for host in hosts if not host.is_alive and host.open_runs]
    stranded = sum(host.open_runs for host in dead)
    return [
        name,
        *readings,
        Reading("runs", f"{runs:,}, {open_runs:,} open"),
        Reading(
            "hosts",
            f"{sum(host.is_alive for host in hosts)} alive, {sum(not host.is_alive for host in hosts)} dead",
            f"start a host: {stranded:,} open runs belong to dead ones" if dead else None,
        ),
    ]
