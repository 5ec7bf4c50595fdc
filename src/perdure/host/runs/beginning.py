"""Begins runs that were admitted: their rows have no entries, and a message to them has their input.

Any host that owns such a run may do so, whether it admitted the run or took it over. The first commit has the first
entries, acknowledges the input, and is fenced like every other commit: the run begins once.
"""

from collections.abc import Sequence

import msgspec

from perdure.authoring.context import Info
from perdure.core.admission.input import unpack_input
from perdure.core.errors import CorruptJournal
from perdure.core.ids import StepId, promise_root
from perdure.core.journal import events as e
from perdure.core.journal.events import ActType
from perdure.core.messages import START, Message
from perdure.core.runs.acts import Act, act_of, is_act
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.rebuilding import new_machine, program_for
from perdure.engine.runs.acts import acceptance_of
from perdure.engine.runs.effects import Acknowledge, SetTag
from perdure.engine.runs.log_notes import RunStarted
from perdure.engine.runs.messages import take_message
from perdure.engine.runs.warm import WarmRun, rebuild_run
from perdure.host.context import HostContext
from perdure.host.runs.batch import RunStart
from perdure.host.runs.configuring import configure
from perdure.store.commit.group import stale
from perdure.store.rows.records import StoredRun

_ENDS = (ActType.CANCEL, ActType.EMERGENCY_STOP)


async def begin_admitted(
    context: HostContext,
    programs: KnownPrograms,
    stored: StoredRun,
    known: tuple[Message, str | None] | None = None,
) -> WarmRun:
    """The run in memory, at its first wait; nothing of it is written yet. `known` are its input and slot, if the caller
    knows them: otherwise they are read.

    A run that is to be cancelled ends without driving its program.
    """
    run, store = stored.run, context.store
    loaded, _ = rebuild_run(run, stored.entries)
    if known is not None:
        messages, slot = [known[0]], known[1]
    else:
        stored_messages = await store.messages(run.run_id)
        messages = [each for each, state, _ in stored_messages if state == "pending"]
        slot = (await store.list_rows(run.run_id)).slot
    start = next((each for each in messages if each.kind == START), None)
    if start is None:
        now = await store.run(run.run_id)
        if now is not None and (now.seq, now.epoch) != (run.seq, run.epoch):
            raise stale(run.run_id, run.epoch)  # it has begun since its row was read
        raise CorruptJournal(
            f"run {run.run_id!r} has no entries, and the message with its input is missing",
            "restore it from a backup, or start the run again under another key",
        )
    program = program_for(run, programs)
    given = unpack_input(run.run_id, start.payload)
    requested = RunStart(
        *(program, given.payload, run.key, run.scope),
        tags=given.tags,
        trace=given.trace,
        slot=slot,
    )
    info = Info(run.run_id, run.program, run.version, run.key, StepId("root"))
    machine = new_machine(program, info, context.codec, context.sources, programs)
    configure(machine, context.settings)
    warm = WarmRun(machine, run, loaded=loaded)
    ending = _ending_among(messages)
    approval = None if ending else _approval_among(messages)
    if approval is not None:
        machine.feed(e.RunApproved(approval[1].by))
    machine.log_notes.append(RunStarted(None, None))
    # Facts before the program begins: the end of a run that is cancelled is one, and the acceptance of an act another.
    facts = (1 + (ending[1] is not None and ending[1].type is ActType.CANCEL)) if ending else 0
    root = promise_root(bytes.fromhex(run.digest), None, run.key or run.run_id)
    started = msgspec.structs.replace(
        requested.event(run.run_id),
        version=run.version,
        component_digest=run.digest,
        root=root.hex(),
        inherited=facts,
    )
    tags = [SetTag(name, value, None) for name, value in requested.own_tags.items()]
    machine.feed(started, Acknowledge(start.guid), *tags)
    if ending is not None:
        take_message(warm, ending[0])
    if approval is not None and not machine.is_over:
        message, act = approval
        machine.feed(acceptance_of(act, message), Acknowledge(message.guid))
    return warm


def _ending_among(messages: Sequence[Message]) -> tuple[Message, Act | None] | None:
    """The first message that ends the run before it begins, with its act if it is one."""
    for message in messages:
        if message.kind.partition(":")[0] == "cancel":
            return message, None
        act = act_of(message) if is_act(message.kind) else None
        if act is not None and act.refusal is None and act.type in _ENDS:
            return message, act
    return None


def _approval_among(messages: Sequence[Message]) -> tuple[Message, Act] | None:
    """The first approval that was not denied."""
    for message in messages:
        act = act_of(message) if is_act(message.kind) else None
        if act is not None and act.refusal is None and act.type is ActType.APPROVE:
            return message, act
    return None
