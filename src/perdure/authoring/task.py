"""Tasks: functions with side effects. Each call in a workflow is a durable step."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from copy import copy
from dataclasses import dataclass
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from perdure.authoring.call import Call
from perdure.authoring.context import TASK
from perdure.authoring.definition import Definition, require_name
from perdure.authoring.doubt import DoubtPolicy, OnDoubt, Reconcile, policy_of
from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.registry import register
from perdure.authoring.retry import ONCE, Retry
from perdure.authoring.signature import POSITIONAL
from perdure.core.errors import InputError, OutsideRun
from perdure.core.journal.events import InvokeKind
from perdure.core.replay.doubt import Resolution
from perdure.core.transactions import Transaction

P = ParamSpec("P")
R = TypeVar("R")

TaskKind = Literal["function", "http"]
OnCancel = Literal["stop", "finish"]
OnFailure = Literal["fail", "park"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of `@task(...)`, without the name."""

    retry: Retry = ONCE
    timeout: Duration | None = None
    heartbeat_timeout: Duration | None = None
    queue: str | None = None
    priority: int = 0
    kind: TaskKind = "function"
    on_doubt: OnDoubt = "retry"
    on_cancel: OnCancel = "stop"
    on_failure: OnFailure | None = None
    transactional: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.retry, Retry):
            raise InputError(f"retry is {self.retry!r}", "pass perdure.Retry(...)")
        if self.kind not in ("function", "http"):
            raise InputError(f"kind is {self.kind!r}", "use 'function' or 'http'")
        if type(self.priority) is not int or abs(self.priority) >= 1 << 31:
            raise InputError(f"priority is {self.priority!r}", "pass a whole number of 32 bits")
        if self.queue is not None:
            require_name("queue", self.queue)
        policy_of(self.on_doubt)
        if self.on_cancel not in ("stop", "finish"):
            raise InputError(f"on_cancel is {self.on_cancel!r}", "use 'stop' or 'finish'")
        if self.on_failure not in (None, "fail", "park"):
            raise InputError(f"on_failure is {self.on_failure!r}", "use 'fail' or 'park'")
        if not isinstance(self.transactional, bool):
            raise InputError(f"transactional is {self.transactional!r}", "pass True or False")
        if self.transactional and self.queue is not None:
            raise InputError(
                f"a transactional task on queue {self.queue!r}",
                "leave the queue out: only the host that owns the run can commit with its books",
            )
        if self.transactional and self.on_doubt != "retry":
            raise InputError(
                f"a transactional task with on_doubt={self.on_doubt!r}",
                "leave it out: what was not committed did not happen, and is done again",
            )


class Task(Definition[P, R]):
    """A task. Calling it returns a `Call`; awaiting the call in a workflow is a durable step."""

    noun: ClassVar[str] = "task"
    family: ClassVar[str] = "task"
    is_tuned = False
    """Whether a graph node overrides its retry policy or timeout."""

    def __init__(self, fn: Callable[P, Any], name: str | None, options: TaskOptions) -> None:
        super().__init__(fn, name, given=int(options.transactional))
        self.is_async = inspect.iscoroutinefunction(fn)
        self.is_transactional = options.transactional
        if options.transactional:
            self._require_transaction_first()
        self.retry = options.retry
        self.timeout_ms = _limit(options.timeout, "timeout")
        self.heartbeat_timeout_ms = _limit(options.heartbeat_timeout, "heartbeat_timeout")
        self.queue = options.queue
        self.priority = options.priority
        self.kind = InvokeKind(options.kind)
        self.policy = options.retry.policy if options.retry.attempts > 1 else None
        self.on_doubt = policy_of(options.on_doubt)
        self.finishes_on_cancel = options.on_cancel == "finish"
        """Whether a running attempt may finish when the run is cancelled."""
        self.parks_failure = None if options.on_failure is None else options.on_failure == "park"
        """Whether a failed step waits for an operator; `None` leaves it to the engine's settings."""
        self.reconcile = None
        if self.on_doubt is Resolution.RECONCILE and callable(options.on_doubt):
            self.reconcile = Reconcile(options.on_doubt, self)
        register(self)

    def tuned(self, retry: Retry, timeout: Duration | None) -> "Task[P, R]":
        """An unregistered copy with another retry policy and, if given, another timeout."""
        limit_ms = self.timeout_ms if timeout is None else _limit(timeout, "timeout")
        return self.limited(limit_ms, retry)

    def limited(self, timeout_ms: int | None, retry: Retry | None = None) -> "Task[P, R]":
        """An unregistered copy with another timeout in milliseconds and, if given, another retry policy."""
        other = copy(self)
        other.is_tuned = True
        other.timeout_ms = timeout_ms
        if retry is not None:
            other.retry = retry
            other.policy = retry.policy if retry.attempts > 1 else None
        return other

    def parking(self, parks: bool) -> "Task[P, R]":
        """An unregistered copy whose failed steps are parked, or fail."""
        other = copy(self)
        other.parks_failure = parks
        return other

    def enclosing(self, fn: Callable[P, Any], name: str) -> "Task[P, R]":
        """An unregistered copy with another function of the same signature, and another name."""
        other = copy(self)
        assert inspect.isfunction(fn)  # noqa: S101 - for the type checker
        other.fn, other.name = fn, require_name("task", name)
        return other

    def _require_transaction_first(self) -> None:
        if not self.is_async:
            raise InputError(
                f"transactional task {self.name!r} is not async",
                "write `async def`: a transaction belongs to the event loop, not to a thread",
            )
        first = next(iter(inspect.signature(self.fn).parameters.values()), None)
        if first is None or first.kind not in POSITIONAL:
            raise InputError(
                f"transactional task {self.name!r} has no parameter for its transaction",
                f"write `async def {self.name}(tx: perdure.Transaction, ...)`",
            )

    async def run_outside(self, call: Call[R]) -> R:
        """Run the function at once: as part of the calling task, or of plain code."""
        if self.is_transactional:
            raise OutsideRun(
                f"transactional task {self.name!r} is called outside a workflow",
                f"call it in a workflow, or {self.name}.fn(tx, ...) with an open transaction",
            )
        context = TASK.get()
        token = None if context is None else TASK.set(context.nested())
        try:
            args, kwargs = self.signature.arguments(call.arguments)
            if self.is_async:
                result: R = await self.fn(*args, **kwargs)
                return result
            inside = copy_context()
            return await asyncio.to_thread(inside.run, self.fn, *args, **kwargs)
        finally:
            if token is not None:
                TASK.reset(token)


def _limit(duration: Duration | None, what: str) -> int | None:
    if duration is None:
        return None
    limit_ms = milliseconds(duration, what)
    if not limit_ms:
        raise InputError(f"{what} is {duration!r}", "pass more than 0, or None for no limit")
    return limit_ms


class TaskDecorator(Protocol):
    """`@task(...)` with options."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class ReconciledDecorator(Protocol[R]):
    """`@task(on_doubt=reconcile)`: task and reconcile function have the same result type."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class CommonOptions(TypedDict, total=False):
    """Options of every task."""

    name: str | None
    retry: Retry
    timeout: Duration | None
    heartbeat_timeout: Duration | None
    kind: TaskKind
    on_cancel: OnCancel
    on_failure: OnFailure | None


class Options(CommonOptions, total=False):
    """Options of tasks that are not transactional."""

    queue: str | None
    priority: int
    transactional: Literal[False]


class TransactionalDecorator(Protocol):
    """`@task(transactional=True)`: callers pass all parameters but the transaction."""

    def __call__(
        self, fn: Callable[Concatenate[Transaction, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, R]: ...


@overload
def task(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
@overload
def task(fn: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(*, on_doubt: DoubtPolicy = "retry", **options: Unpack[Options]) -> TaskDecorator: ...
@overload
def task(
    *, on_doubt: Callable[Concatenate[str, ...], Coroutine[Any, Any, R]], **options: Unpack[Options]
) -> ReconciledDecorator[R]: ...
@overload
def task(
    *, on_doubt: Callable[Concatenate[str, ...], R], **options: Unpack[Options]
) -> ReconciledDecorator[R]: ...
@overload
def task(
    *, transactional: Literal[True], **options: Unpack[CommonOptions]
) -> TransactionalDecorator: ...
def task(
    fn: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any
) -> Any:
    """Make a function a task: `@task`, or `@task(retry=..., timeout=...)`.

    `timeout` is per attempt; `heartbeat_timeout` is the longest time between two calls of
    `perdure.heartbeat()`. `queue` sends the task to any host that serves that queue, the highest `priority`
    first. `kind="http"` labels it as such in the journal. `on_doubt` decides what becomes of a step that had started
    when its host died: the host retries it ("retry"), the step fails with `StepInDoubt` ("fail"), or a function that
    takes `perdure.key()` returns the step's result or raises `NotDone`. With `on_cancel="finish"` an attempt that is
    running when the run is cancelled finishes first, and is not retried; otherwise the host stops it. With
    `on_failure="park"` a step that has failed for good waits for an operator, who retries or skips it; with "fail" the
    workflow gets the error. Without it the setting `on_failure` of the engine counts.
    `transactional=True` passes a `perdure.Transaction` as the first argument; its writes commit with the step's result.
    """
    checked = TaskOptions(**options)
    if fn is not None:
        return Task(fn, name, checked)
    return lambda function: Task(function, name, checked)
