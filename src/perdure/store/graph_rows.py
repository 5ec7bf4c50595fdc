"""Changes of the tables of graphs, in the order in which the statements take them, and rows as values again."""

from collections.abc import Sequence
from typing import Any

from perdure.core.ids import RunId, StepId
from perdure.core.journal.state import Status
from perdure.store.graph_index import GraphIndex
from perdure.store.records import Delivery, Deployed, Hook, Program, Readiness

Row = tuple[Any, ...]


def cleared_runs(index: GraphIndex) -> list[Row]:
    return [(run_id,) for run_id, run in index.runs.items() if run.clears]


def unhooked_runs(index: GraphIndex) -> list[Row]:
    return [(run_id,) for run_id, run in index.runs.items() if run.unhooks]


def cleared_steps(index: GraphIndex) -> list[Row]:
    return [(run_id, step) for run_id, step, change in index.steps() if change.clears]


def unhooked_steps(index: GraphIndex) -> list[Row]:
    return [(run_id, step) for run_id, step, change in index.steps() if change.unhooks]


def tracked_rows(index: GraphIndex) -> list[Row]:
    return [
        (run_id, step, change.required, change.resolved)
        for run_id, step, change in index.steps()
        if change.resolved
    ]


def delivered_rows(index: GraphIndex) -> list[Row]:
    return [
        (run_id, step, d.position, d.source, d.variable, d.value)
        for run_id, step, change in index.steps()
        for d in change.deliveries
    ]


def hook_rows(index: GraphIndex) -> list[Row]:
    return [
        (hook.run_id, hook.step, hook.kind, hook.mailbox, hook.topic, hook.key, hook.since_ms)
        for hook in index.hooks()
    ]


def broadcast_rows(index: GraphIndex) -> list[Row]:
    return [(b.mailbox, b.kind, b.payload, b.suffix, b.now_ms, b.scrub) for b in index.broadcasts]


def readiness_from(row: Sequence[Any]) -> Readiness:
    return Readiness(*row)


def delivery_from(row: Sequence[Any]) -> Delivery:
    return Delivery(*row)


def hook_from(row: Sequence[Any]) -> Hook:
    run_id, step, kind, mailbox, *rest = row
    return Hook(RunId(run_id), StepId(step), kind, RunId(mailbox), *rest)


def count_from(row: Sequence[Any]) -> tuple[str, Status, int]:
    value, status, count = row
    return value, Status(status), count


def program_from(row: Sequence[Any]) -> Program:
    name, version, digest, content, deployed_at_ms, is_active, activations, open_runs = row
    about = name, version, digest, content, deployed_at_ms
    return Program(*about, bool(is_active), activations, open_runs)


def deployed_from(row: Sequence[Any]) -> Deployed:
    name, version, digest, content, is_active, activations = row
    return Deployed(name, version, digest, content, bool(is_active), activations)
