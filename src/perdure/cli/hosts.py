"""`perdure hosts` and `perdure queues`: who executes, and what waits for them."""

import asyncio

from rich.text import Text

from perdure.cli.output import Column, FormatOption, age, cell, print_values
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.client.hosts import HostState, host_list
from perdure.host.clock import HostSources
from perdure.store.operator_tables import QueueRow


def hosts(*, store: StoreOption = None, output: FormatOption = "table") -> int:
    """List the hosts, and whether each is alive.

    A host on this machine is judged at once; others are watched until their heartbeat changes.
    """

    async def read() -> list[HostState]:
        async with existing_store(store) as opened:
            return await host_list(opened)

    now_ms = HostSources().now_ms()
    columns: list[Column[HostState]] = [
        Column("host", lambda host: cell(host.host)),
        Column("state", _state),
        Column("started", lambda host: age(host.started_at_ms, now_ms)),
        Column("open runs", lambda host: f"{host.open_runs:,}", is_number=True),
        Column("tasks", lambda host: f"{host.claimed:,}", is_number=True),
        Column("queues", lambda host: cell(", ".join(host.queues) or "-"), is_cut=True),
    ]
    print_values(asyncio.run(read()), output, columns, lambda host: host.host)
    return 0


def queues(*, store: StoreOption = None, output: FormatOption = "table") -> int:
    """List the queues: tasks that are due, due later, and claimed, and the hosts that serve them."""
    now_ms = HostSources().now_ms()

    async def read() -> list[QueueRow]:
        async with existing_store(store) as opened:
            return await opened.queue_rows(now_ms)

    columns: list[Column[QueueRow]] = [
        Column("queue", lambda row: cell(row.queue)),
        Column("due", lambda row: f"{row.due:,}", is_number=True),
        Column("later", lambda row: f"{row.later:,}", is_number=True),
        Column("claimed", lambda row: f"{row.claimed:,}", is_number=True),
        Column("due since", lambda row: age(row.oldest_ms, now_ms)),
        Column("hosts", lambda row: f"{row.hosts:,}", is_number=True),
    ]
    print_values(asyncio.run(read()), output, columns, lambda row: row.queue)
    return 0


def _state(host: HostState) -> Text:
    return Text("alive", style="green") if host.is_alive else Text("dead", style="red")
