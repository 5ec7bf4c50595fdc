"""What a caller asks of a fork, checked and encoded; and what the fork would do."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.authoring.registry import find
from perdure.authoring.texts import require_user_text
from perdure.authoring.values.failures import encode_failure
from perdure.core.codec import Codec
from perdure.core.errors import InputError, NotDecodable, StepCancelled, UnknownStep
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.limits import MAX_STEP_BYTES
from perdure.core.replay.identity import idempotency_text
from perdure.core.runs.forking import START, ForkPlan, steps_of
from perdure.engine.known_programs import KnownPrograms
from perdure.store.rows.records import Run


class ForkedStep(msgspec.Struct, frozen=True):
    """A step of a fork: its id, the task or program that it calls, and what `perdure.key()` gives the task there."""

    step: StepId
    name: str
    key: str


class ForkPreview(msgspec.Struct, frozen=True):
    """What the fork that is made with `id` would do. It keeps the first `entries` entries of run `source`.

    `repeated` steps are executed again, and then whatever the program does next. `kept` steps ended later, and keep
    their outcomes. `doubted` steps had started without an outcome: their `on_doubt` decides. `signals` are the names of
    signals that the run received later and that are sent to the fork; `lost_signals` are not, because the fork has not
    begun the step that they were for.
    """

    source: RunId
    fork: RunId
    id: str
    entries: int
    repeated: tuple[ForkedStep, ...]
    kept: tuple[ForkedStep, ...]
    doubted: tuple[ForkedStep, ...]
    signals: tuple[str, ...]
    lost_signals: tuple[str, ...]


def preview_of(
    source: RunId, fork: RunId, act_id: str, plan: ForkPlan, *, signals: bool
) -> ForkPreview:
    names = steps_of(plan.events)

    def named(steps: Iterable[StepId]) -> tuple[ForkedStep, ...]:
        return tuple(
            ForkedStep(step, names.get(step, ""), idempotency_text(fork, step)) for step in steps
        )

    sent, lost = plan.signals, plan.lost
    if not signals:
        sent, lost = (), (*sent, *lost)
    names_of = [tuple(each.signal_name for each in group) for group in (sent, lost)]
    steps = named(plan.repeated), named(plan.kept), named(plan.doubted)
    return ForkPreview(source, fork, act_id, plan.cut, *steps, *names_of)


def find_forked_step(run_id: RunId, given: str, journal: Sequence[e.Event]) -> StepId:
    """The step with that id, or the only one that calls a task or program of that name."""
    require_user_text("a step", given, MAX_STEP_BYTES)
    steps = steps_of(journal)
    if given == START or given in steps:
        return StepId(given)
    named = [step for step, name in steps.items() if name == given]
    if len(named) == 1:
        return named[0]
    known = ", ".join([*map(repr, list(steps)[:8]), *(["..."] if len(steps) > 8 else [])])
    if named:
        what, remedy = f"{len(named)} steps that call {given!r}", ", ".join(map(repr, named[:8]))
        raise UnknownStep(f"run {run_id!r} has {what}", f"name one of them by its id: {remedy}")
    raise UnknownStep(
        f"run {run_id!r} has no step {given!r}",
        f"name one of its steps ({known or 'it has none'}), or 'root' to fork at its start",
    )


def encoded_values(
    run_id: RunId,
    values: Mapping[str, Any],
    journal: Sequence[e.Event],
    codec: Codec,
    programs: KnownPrograms,
) -> dict[StepId, bytes]:
    """The values that replace outcomes, by step. Refuses a value that does not match the step's result annotation."""
    found: dict[StepId, bytes] = {}
    names = steps_of(journal)
    for given, value in values.items():
        step = find_forked_step(run_id, given, journal)
        if step in found or step == START:
            what = "the start of a run has no result" if step == START else f"{step!r} is set twice"
            raise InputError(
                f"a fork of run {run_id!r} can't set {given!r}: {what}", "leave it out"
            )
        payload = found[step] = codec.encode(value)
        definition = find("task", names[step]) or programs.find(names[step])
        if definition is None:
            continue
        try:
            definition.signature.unpack_result(codec, payload)
        except NotDecodable as error:
            raise InputError(
                f"the value {value!r} for step {step!r} is no result of {names[step]!r}: {error.what}",
                f"pass a value of its return type, {definition.signature.result_text}",
            ) from error
    return found


def require_kept_payloads(
    run: Run, entries: Sequence[Entry], plan: ForkPlan, *, signals: bool
) -> None:
    """Raise if a payload that the fork keeps was erased: the program could not repeat these entries."""
    for entry in entries:
        if entry.erased is None:
            continue
        event = entry.event
        is_kept = entry.seq < plan.cut
        if isinstance(event, e.InvokeCompleted | e.StepSkipped):
            is_kept = is_kept or event.promise_id in plan.kept
        elif isinstance(event, e.SignalDelivered):
            is_kept = is_kept or (signals and event in plan.signals)
        if is_kept:
            raise InputError(
                f"entry {entry.seq} of run {run.run_id!r} was erased, and a fork needs its payload",
                "fork at an earlier step, or start a new run",
            )


def lost_child(codec: Codec, source: RunId) -> bytes:
    """The error with which a fork gives up the child runs of its source."""
    what = f"the child run belongs to run {source!r}, which was forked"
    return encode_failure(codec, StepCancelled(what, "the fork starts another"))
