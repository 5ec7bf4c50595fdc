"""The payload of queued work: what a host needs to execute one attempt of a task."""

from typing import TYPE_CHECKING

import msgspec

from perdure.authoring.context import Info
from perdure.core.errors import CorruptJournal
from perdure.core.ids import StepId
from perdure.core.messages import Work, WorkHeader
from perdure.core.replay.identity import result_guid
from perdure.engine.runs.promise import DurablePromise

if TYPE_CHECKING:
    from perdure.engine.runs.machine import RunMachine

_encode = msgspec.json.Encoder().encode


class WorkPayload(WorkHeader, frozen=True, omit_defaults=True):
    """The header as a host reads it."""

    def info(self, work: Work) -> Info:
        return Info(
            *(work.run_id, self.program, self.version, self.key, StepId(work.step), self.attempt),
            logical_attempt=self.logical_attempt,
            trace=self.trace,
        )


def work_of(
    machine: "RunMachine", promise: DurablePromise, attempt: int, available_at_ms: int
) -> Work:
    """The work that puts one attempt of a task on its queue."""
    task = promise.task
    run_id, step = machine.info.run_id, promise.step
    return Work(
        run_id,
        step,
        result_guid(run_id, step, attempt),
        task.queue or "",
        available_at_ms,
        task.priority,
        pack_work(promise, attempt, machine.info),
    )


def pack_work(promise: DurablePromise, attempt: int, info: Info) -> bytes:
    task = promise.task
    header = WorkPayload(
        *(task.name, attempt, info.program, info.version, info.key),
        doubts=promise.doubts,
        stops=promise.stops,
        logical_attempt=promise.logical_attempt,
        timeout_ms=task.timeout_ms if task.is_tuned else None,
        trace=info.trace,
    )
    return _encode(header) + b"\n" + promise.input


def after_stop(work: Work) -> Work:
    """The same work, to be queued again after a host ended the attempt in order to stop."""
    before, payload = unpack_work(work)
    header = msgspec.structs.replace(before, stops=before.stops + 1)
    return msgspec.structs.replace(work, payload=_encode(header) + b"\n" + payload)


def unpack_work(work: Work) -> tuple[WorkPayload, bytes]:
    header, _, payload = (work.payload or b"").partition(b"\n")
    try:
        return msgspec.json.decode(header, type=WorkPayload), payload
    except msgspec.DecodeError as error:
        raise CorruptJournal(
            f"the header of work {work.step!r} of run {work.run_id!r} can't be read ({error})",
            "run the host with the Perdure version that wrote it, or restore the row from a backup",
        ) from error
