"""Figures for Prometheus, as text: of the store as it is, and of this process since it started. No ids are labels."""

from collections.abc import Iterable
from typing import NamedTuple

from starlette.responses import Response

from perdure.api.exchange import Exchange

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Figure(NamedTuple):
    """A figure with its values, by the text of their labels."""

    name: str
    kind: str
    help: str
    values: dict[str, float]

    def text(self) -> str:
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        lines += [f"{self.name}{labels} {value:g}" for labels, value in self.values.items()]
        return "\n".join(lines) + "\n"


def label(name: str, value: str) -> str:
    """One label, escaped as the format wants it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{{name}="{escaped}"}}'


async def metrics(exchange: Exchange) -> Response:
    """Reads the store: three statements."""
    figures = [*await _of_store(exchange), *_of_process(exchange)]
    return Response("".join(each.text() for each in figures), media_type=CONTENT_TYPE)


async def _of_store(exchange: Exchange) -> Iterable[Figure]:
    store, now_ms = exchange.store, exchange.now_ms
    queues = await store.queue_rows(now_ms)
    return (
        Figure(
            "perdure_open_runs",
            "gauge",
            "Runs of the store that are not over.",
            {"": await store.count_open_runs()},
        ),
        Figure(
            "perdure_hosts",
            "gauge",
            "Hosts that have a row in the store, dead ones included until they are taken over.",
            {"": sum(row.beat is not None for row in await store.host_rows())},
        ),
        Figure(
            "perdure_queue_due_tasks",
            "gauge",
            "Tasks of a queue that are due and not claimed.",
            {label("queue", row.queue): row.due for row in queues},
        ),
        Figure(
            "perdure_queue_claimed_tasks",
            "gauge",
            "Tasks of a queue that hosts have claimed.",
            {label("queue", row.queue): row.claimed for row in queues},
        ),
        Figure(
            "perdure_queue_oldest_seconds",
            "gauge",
            "For how long the oldest due task of a queue has been due.",
            {
                label("queue", row.queue): max(0, now_ms - row.oldest_ms) / 1000
                for row in queues
                if row.oldest_ms is not None
            },
        ),
    )


def _of_process(exchange: Exchange) -> Iterable[Figure]:
    warm = exchange.engine.warm_memory()
    return (
        Figure(
            "perdure_warm_runs", "gauge", "Runs in the memory of this process.", {"": warm.runs}
        ),
        Figure(
            "perdure_warm_bytes",
            "gauge",
            "Bytes that these runs hold, by an estimate.",
            {"": warm.used_bytes},
        ),
        Figure(
            "perdure_evictions_total",
            "counter",
            "Runs that left the memory of this process.",
            {"": warm.evictions},
        ),
        Figure(
            "perdure_replays_total",
            "counter",
            "Runs that this process has replayed.",
            {"": warm.replays},
        ),
        Figure(
            "perdure_alerts_total",
            "counter",
            "Alerts that this process has raised.",
            {label("code", code): count for code, count in exchange.engine.alerts().items()},
        ),
        Figure(
            "perdure_http_requests_total",
            "counter",
            "Requests that this server has answered, by the class of their status.",
            {
                label("status", f"{status}xx"): count
                for status, count in sorted(exchange.shared.get("answered", {}).items())
            },
        ),
    )
