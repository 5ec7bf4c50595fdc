"""The verbs that take a step id or attach an effect, and wait for nothing: clocks, randomness, values, join sets."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.authoring.call import BranchOperation, Call, DurableOperation
from perdure.authoring.context import Info, Promise
from perdure.authoring.definition import Definition
from perdure.authoring.parameters import ClassParameters
from perdure.authoring.signal import Signal
from perdure.core.codec import Codec, encode_named
from perdure.core.errors import InputError
from perdure.core.ids import Guid, SetId, StepId
from perdure.core.journal import events as e
from perdure.engine.runs.effects import AppendChunk, Enqueue, Publish
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.workflow.coroutines import wait_for
from perdure.engine.workflow.fiber import Fiber
from perdure.engine.workflow.signals import WorkflowSignals, signal_to_child
from perdure.engine.workflow.unawaited import Unawaited

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class VerbMachine(RunMachine):
    """What these verbs do. Each acts for the coroutine that runs now."""

    __slots__ = ("_appended", "_last_place", "unawaited")

    unawaited: Unawaited
    signals: WorkflowSignals
    current: Fiber | None
    is_closing: bool
    _last_place: StepId
    _appended: dict[str, int]
    """Chunks that the workflow itself has appended, by stream."""

    @abstractmethod
    def require_current(self) -> Fiber:
        """The coroutine that runs now; no other one may call verbs. Counts the call."""

    @abstractmethod
    def begin(self, operation: DurableOperation[Any]) -> DurablePromise:
        """Begin `operation` under the next step id of the coroutine that runs now."""

    def used(self, operation: DurableOperation[Any]) -> None:
        self.unawaited.pop(id(operation), None)

    def use(self, call: Call[Any]) -> Definition[..., Any]:
        """Mark a call as used, so that it is not reported as never awaited. Returns its definition."""
        self.unawaited.pop(id(call), None)
        call.use()
        return call.definition

    def next_place(self, fiber: Fiber) -> StepId:
        """The next step id of a fiber."""
        return StepId(f"{fiber.prefix}.{fiber.next_seq}")

    def take_place(self, fiber: Fiber) -> StepId:
        step = self._last_place = StepId(f"{fiber.prefix}.{fiber.next_seq}")
        fiber.next_seq += 1
        return step

    def now(self) -> datetime:
        step = self.take_place(self.require_current())
        event = self.record.emit(e.TimeRecorded(step, self.sources.now_ms() * 1000))
        return _EPOCH + timedelta(microseconds=event.time_us)

    def draw(self) -> int:
        step = self.take_place(self.require_current())
        value = 0
        if not self.record.is_replaying:
            value = int.from_bytes(self.sources.entropy(8), "big") >> 1
        event: e.RandomGenerated = self.record.emit(e.RandomGenerated(step, value))
        return event.value

    def current_info(self) -> Info:
        if self.current is None or self.is_closing:
            return self.info  # the workflow is being left: nothing more is recorded
        suggested = self.patches.suggests_continuing(is_long=self.size.is_long)
        return replace(self.info, continue_suggested=True) if suggested else self.info

    def patched(self, patch: str) -> bool:
        self.require_current()
        return self.patches.follows(patch)

    def params(self, declared: type[T]) -> T:
        self.require_current()
        program = self.program
        if (
            self.parameters is None
            or not isinstance(program.parameters, ClassParameters)
            or declared is not program.parameters.declared
        ):
            name = getattr(declared, "__name__", f"{declared!r:.100}")
            raise InputError(
                f"perdure.params({name}) is called in workflow {program.name!r}, which declares no such parameters",
                f"declare them with @workflow(params={name})",
            )
        read: T = self.parameters.read()
        return read

    def last_place(self) -> StepId:
        return self._last_place

    def _encode(self, value: object, what: str) -> bytes:
        return encode_named(self.codec, value, lambda: f"{what} by run {self.info.run_id!r}")

    def publish(self, name: str, value: object) -> None:
        self.require_current()
        self.record.attach(Publish(name, self._encode(value, f"value {name!r} published")))

    def tag(self, tags: Mapping[str, str]) -> None:
        self.require_current()
        self.set_tags(tags)

    def append(self, name: str, value: object) -> None:
        self.require_current()
        payload = self._encode(value, f"a chunk of stream {name!r} appended")
        number = self._appended.get(name, 0)
        self._appended[name] = number + 1
        self.record.attach(AppendChunk(name, number, payload))

    def asked(self, name: str, guid: Guid) -> None:
        self.signals.asked(name, guid)

    def answer(
        self, name: str, guid: Guid, encode: Callable[[Codec], bytes], *, is_rejection: bool
    ) -> None:
        self.require_current()
        self.signals.answer(name, guid, encode(self.codec), is_rejection=is_rejection)

    def create_set(self) -> SetId:
        set_id = SetId(self.take_place(self.require_current()))
        self.record.emit(e.JoinSetCreated(set_id))
        return set_id

    def submit(self, set_id: SetId, operation: DurableOperation[Any]) -> DurablePromise:
        if not isinstance(operation, Call | BranchOperation):
            self.unawaited.pop(id(operation), None)
            operation = BranchOperation(wait_for(operation))
        promise = self.begin(operation)
        self.record.emit(e.JoinSetSubmitted(set_id, promise.step))
        return promise

    def consume(self, set_id: SetId, promise: Promise) -> None:
        self.require_current()
        self.record.emit(e.JoinSetAwaited(set_id, promise.step))

    def start_child(self, call: Call[Any]) -> DurablePromise:
        promise = self.begin(call)
        promise.is_detached = True
        return promise

    def signal_child(self, promise: Promise, signal: Signal[Any], value: object) -> None:
        assert promise.child_run is not None  # noqa: S101 - for the type checker
        payload = signal.encode(self.codec, value)
        place = self.take_place(self.require_current())
        sent = signal_to_child(self, promise.child_run, signal.name, place, payload)
        self.record.attach(Enqueue(sent))
