"""Rows that an open run requires in order to resume: a timer's message, a queued task's work, a retry's message.

Each was written in the commit of the event that decided it. If such a row is lost the run waits for ever, so the host
that loads the run writes the row again. Its GUID is derived, so it is never stored twice.
"""

from collections.abc import Sequence

import msgspec

from perdure.core.errors import BooksDiffer
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.list_rows import ListRows
from perdure.core.messages import Message, Work, at_once
from perdure.core.obligations import (
    Lifetime,
    is_fit,
    is_misdated,
    is_result,
    obligations_of,
    unknown_outcome,
)
from perdure.core.replay.identity import result_guid, retry_guid, timer_guid
from perdure.engine.runs.failing import fingerprint_of
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.runs.warm import WarmRun
from perdure.engine.runs.work_payload import work_of
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import ParkedStep, StoredRun

RequiredRow = Message | Work

_RETRIED = (PromiseKind.LOCAL, PromiseKind.CHILD)
"""Promises whose next attempt begins with a message."""


def missing_rows(warm: WarmRun, stored: StoredRun) -> list[RequiredRow]:
    """The rows that the run's journal requires and that are missing from the store or damaged.

    Raises `BooksDiffer` if the outcome of an attempt is stored and damaged: it can't be derived from the journal.
    Call it after the replay and before anything new is decided: newer decisions have no rows yet.
    """
    state = warm.journal.state
    missing: list[RequiredRow] = []
    queues = _queues(warm.machine, stored.entries)
    for promise in warm.machine.promises.values():
        step = promise.step
        if promise.is_parked:
            continue  # an operator decides what follows
        if promise.kind is PromiseKind.TIMER and step in state.timers:
            missing += _timer(warm.run_id, promise, stored)
        elif promise.kind is PromiseKind.QUEUED and step in state.scheduled:
            missing += _work(warm.machine, promise, queues.get(step), stored)
        elif promise.kind in _RETRIED and promise.retry_at_ms and not promise.is_running:
            missing += _retry(warm.run_id, promise, stored)
    return missing


def awaited_children(warm: WarmRun) -> dict[RunId, DurablePromise]:
    """The child runs in the journal whose results the run waits for."""
    scheduled = warm.journal.state.scheduled
    return {
        promise.child_run: promise
        for promise in warm.machine.promises.values()
        if promise.child_run is not None and promise.step in scheduled and not promise.retry_at_ms
    }


def _timer(run_id: RunId, promise: DurablePromise, stored: StoredRun) -> list[RequiredRow]:
    guid = timer_guid(run_id, promise.step)
    fire_at = _fire_at(promise, stored.entries)
    if is_fit(stored.messages, guid, promise.step, "timer", fire_at):
        return []
    return [Message(run_id, guid, "timer", fire_at, fire_at, promise.step)]


def _fire_at(promise: DurablePromise, entries: Sequence[Entry]) -> int:
    for entry in reversed(entries):
        event = entry.event
        if isinstance(event, e.TimerScheduled) and event.promise_id == promise.step:
            return event.fire_at_ms
    return 0


def _work(
    machine: RunMachine, promise: DurablePromise, queue: str | None, stored: StoredRun
) -> list[RequiredRow]:
    """`queue` is that of the journal; `None` if its entries are older than that field."""
    attempt = promise.attempt if promise.is_running else promise.attempt + 1
    result = result_guid(machine.info.run_id, promise.step, attempt)
    held, now = stored.work.get(promise.step), machine.sources.now_ms()
    if held is not None and held.guid == result:
        # Claimed work is left alone if it can be read: its host may be executing it.
        is_elsewhere = queue is not None and held.queue != queue and held.host is None
        life = Lifetime(stored.entries[0].at_ms, now)
        is_changed = is_elsewhere or is_misdated(held, promise.retry_at_ms, life)
        if held.is_readable and not is_changed:
            return []
    elif is_result(stored.messages, result, promise.step):
        return []
    elif damage := unknown_outcome(stored.messages, machine.info.run_id, promise.step, attempt):
        raise BooksDiffer(
            f"the books of run {machine.info.run_id!r} do not balance: {damage}",
            "its task has ended and is not executed again: restore the message from a backup and start the engine "
            "again, or cancel the run",
        )
    # A first attempt is due at once on every host's clock, a retry at its own time.
    work = work_of(machine, promise, attempt, promise.retry_at_ms or at_once(now))
    # The code may name another queue by now; the journal names the one that the audit expects.
    return [work if queue is None else msgspec.structs.replace(work, queue=queue)]


def _queues(machine: RunMachine, entries: Sequence[Entry]) -> dict[StepId, str]:
    """The queues of open steps, as the journal names them."""
    if all(promise.kind is not PromiseKind.QUEUED for promise in machine.promises.values()):
        return {}
    return obligations_of(entry.event for entry in entries).queues


def _retry(run_id: RunId, promise: DurablePromise, stored: StoredRun) -> list[RequiredRow]:
    guid = retry_guid(run_id, promise.step, promise.attempt)
    due = promise.retry_at_ms
    if is_fit(stored.messages, guid, promise.step, "retry", due):
        return []
    return [Message(run_id, guid, "retry", due, due, promise.step)]


# Rows by which lists find the run


def add_list_rows(
    warm: WarmRun, entries: Sequence[Entry], rows: ListRows, bundle: Bundle
) -> list[str]:
    """Add the tags, search keys and parked steps that the run has and its rows lack. Returns what they are."""
    added: list[str] = []
    machine, fence = warm.machine, warm.fence
    for name, value in machine.tags.items():
        if (name, value) in rows.tags or machine.record.has_effects:
            continue  # a tag that is not committed yet brings its own row
        # A row of this value may be damaged.
        for before in (value, *(held for tag, held in sorted(rows.tags) if tag == name)):
            bundle.tag(fence, name, value, machine.sources.now_ms(), before, machine.tenant)
        added.append(f"tag {name!r}")
    for key in machine.search_keys:
        if (key.topic, key.key) not in rows.tags:
            bundle.hook(fence, *key)
            added.append(f"search key {key.topic!r}")
    for step, parked in parked_steps(warm, entries).items():
        if step not in rows.parked:
            bundle.park_step(fence, step, parked)
            added.append(f"parked step {step}")
    return added


def has_list_rows(warm: WarmRun) -> bool:
    """Whether the run has tags, search keys or parked steps."""
    machine = warm.machine
    return bool(machine.tags or machine.search_keys) or any(
        promise.is_parked for promise in machine.promises.values()
    )


def parked_steps(warm: WarmRun, entries: Sequence[Entry]) -> dict[StepId, ParkedStep]:
    """The steps that wait for an operator, as lists have them."""
    promises, codec = warm.machine.promises, warm.machine.codec
    found: dict[StepId, ParkedStep] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, e.InvokeRetrying) and event.parks:
            promise = promises.get(event.promise_id)
            if promise is not None and promise.is_parked:
                fingerprint = fingerprint_of(codec, event.payload)
                found[promise.step] = ParkedStep(promise.name, fingerprint, entry.at_ms)
    return found
