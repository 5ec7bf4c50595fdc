"""The table between the two books: what each event posts to the ledger and to the semaphore.

Postings depend on the event alone. The journal posts by this table, and the audit recomputes by it.

A workflow's step is whole: scheduling posts its entry and its first leg, completing posts its second leg.
A staged step posts one digit per event, because its entry and its spawn are `Posted` entries.
Values and join sets are not steps and post nothing.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from perdure.core.journal import events as e
from perdure.core.ledger import (
    ATTEMPT,
    COMPLETED,
    ENTRY,
    FINALIZE,
    LEG1_DONE,
    SPAWNED,
    TRIGGER_SEED,
    WORK_DONE,
    AccountId,
    message_account,
    step_account,
)

Postings: TypeAlias = tuple[tuple[AccountId, int], ...]
Effect: TypeAlias = tuple[Postings, int]
"""Postings, and the change in open obligations."""

FIRST_LEG = ATTEMPT + LEG1_DONE
WHOLE_MESSAGE = WORK_DONE + SPAWNED

_NOTHING: Effect = ((), 0)


def _started(event: e.ExecutionStarted) -> Effect:
    postings: list[tuple[AccountId, int]] = []
    if event.trigger is not None:
        postings.append((step_account(event.trigger), TRIGGER_SEED))
    if event.guid is not None:
        postings.append((message_account(event.guid), WORK_DONE))
    return tuple(postings), 1


def _ended(event: e.Terminal) -> Effect:
    postings: list[tuple[AccountId, int]] = []
    if event.guid is not None:
        postings.append((message_account(event.guid), COMPLETED))
    if event.step is not None:
        postings.append((step_account(event.step), FINALIZE))
    return tuple(postings), -event.released


def _scheduled(event: e.InvokeScheduled | e.TimerScheduled) -> Effect:
    account = step_account(event.promise_id)
    if event.staged:
        return ((account, LEG1_DONE),), 0
    return ((account, FIRST_LEG),), 1


def _completed(event: e.InvokeCompleted | e.TimerFired) -> Effect:
    if event.guid is None:
        return ((step_account(event.promise_id), ENTRY),), -1
    message = message_account(event.guid)
    if event.staged:
        return ((message, WORK_DONE),), 0
    return ((step_account(event.promise_id), ENTRY), (message, ENTRY + WHOLE_MESSAGE)), -1


def _delivered(event: e.SignalDelivered) -> Effect:
    if event.guid is None or event.staged:
        return _NOTHING
    return ((message_account(event.guid), event.delivery_id + WHOLE_MESSAGE),), 0


def _received(event: e.SignalReceived) -> Effect:
    if event.staged and event.guid is not None:
        return ((message_account(event.guid), WORK_DONE),), 0
    return ((step_account(event.promise_id), FIRST_LEG + ENTRY),), 0


def _cancel_requested(event: e.CancelRequested) -> Effect:
    if event.guid is None:
        return _NOTHING
    return ((message_account(event.guid), ENTRY + WHOLE_MESSAGE),), 0


def _decided(event: e.SignalAccepted | e.SignalRejected) -> Effect:
    if event.guid is None:
        return _NOTHING
    return ((message_account(event.guid), ENTRY + WHOLE_MESSAGE),), 0


def _skipped(event: e.StepSkipped) -> Effect:
    if event.staged and event.guid is not None:
        return ((message_account(event.guid), WORK_DONE),), 0
    if not event.released:
        return _NOTHING
    return ((step_account(event.promise_id), ENTRY),), -event.released


def _posted(event: e.Posted) -> Effect:
    return tuple([(each.account, each.increment) for each in event.postings]), event.semaphore


TABLE: dict[type[e.Event], Callable[[Any], Effect] | None] = {
    e.ExecutionStarted: _started,
    e.ExecutionCompleted: _ended,
    e.ExecutionFailed: _ended,
    e.CancelRequested: _cancel_requested,
    e.ExecutionCancelled: _ended,
    e.InvokeScheduled: _scheduled,
    e.InvokeStarted: None,
    e.InvokeCompleted: _completed,
    e.InvokeRetrying: None,
    e.RandomGenerated: None,
    e.TimeRecorded: None,
    e.TimerScheduled: _scheduled,
    e.TimerFired: _completed,
    e.SignalDelivered: _delivered,
    e.SignalReceived: _received,
    e.ExecutionAwaiting: None,
    e.ExecutionResumed: None,
    e.JoinSetCreated: None,
    e.JoinSetSubmitted: None,
    e.JoinSetAwaited: None,
    e.RunApproved: None,
    e.RunPaused: None,
    e.RunResumed: None,
    e.StepSkipped: _skipped,
    e.SignalAccepted: _decided,
    e.SignalRejected: _decided,
    e.RunContinued: _ended,
    e.Posted: _posted,
}


def effect_of(event: e.Event) -> Effect:
    """What `event` posts, and its change in open obligations."""
    effect = TABLE[type(event)]
    return _NOTHING if effect is None else effect(event)
