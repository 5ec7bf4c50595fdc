"""A body: one attempt of a task, and what is known of it while it lives."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from perdure.authoring.context import Info
from perdure.authoring.task import Task
from perdure.core.errors import OutsideRun
from perdure.core.ids import RunId, StepId
from perdure.core.replay.identity import idempotency_text
from perdure.core.transactions import Transaction
from perdure.engine.replay.effects import Publish
from perdure.engine.replay.facts import Outcome, complete, stop
from perdure.engine.replay.warm import WarmRun

Group = tuple[RunId, bool]
"""The bodies of one run, apart from those that this host claimed from a queue."""


class Home(Protocol):
    """Where bodies live."""

    @property
    def chunks_of(self) -> "Callable[[Body], Chunks]":
        """Where the chunks of a body go."""
        ...

    def publish(self, body: "Body", name: str, value: object) -> None: ...


class Chunks(Protocol):
    """Where the chunks of one body go, from whichever thread."""

    def append(self, name: str, value: object) -> None: ...

    def flush(self) -> Awaitable[None]: ...

    def end(self) -> bool:
        """Take nothing more in. Returns whether there is anything to settle."""
        ...

    async def settle(self, outcome: Outcome) -> Outcome:
        """What is to be reported of the body, once all its chunks are durable or can't be."""
        ...

    def close(self) -> None:
        """The body is over. If it was not ended before, nobody wants what it has."""
        ...


class Said(NamedTuple):
    """A value that a body has published, and when."""

    name: str
    payload: bytes
    at_ms: int


class Body(msgspec.Struct, eq=False):
    """An attempt to execute. Implements `TaskContext` for the task that it runs.

    `report` hands the outcome to whoever wants it; what it returns, if anything, is awaited. A body that
    `is_claimed` is from a queue: whoever owns the run does not own it; `claim` says by which claim of the work. The
    step of one that `is_doubted` was in doubt before: its task's reconcile function, if it has one, is asked first.
    """

    info: Info
    task: Task[..., Any]
    payload: bytes
    report: "Report"
    is_claimed: bool = False
    claim: int = 1
    is_doubted: bool = False
    epoch: int = 0
    """That of its run when it began, if it is not claimed."""
    is_reconciled: bool = False
    """Its result was found, and not made."""
    home: "Home | None" = None
    life: asyncio.Task[None] | None = None
    thread: asyncio.Future[Any] | None = None
    """What it runs in now, if it is a thread: that can't be stopped, and keeps the slot until it returns."""
    call: asyncio.Task[Any] | None = None
    """What it runs in now, if it has a time limit: left when that is over, it keeps the slot until it ends."""
    transaction: Transaction | None = None
    """What a transactional task is given to write with."""
    has_begun: bool = False
    is_reporting: bool = False
    """Its outcome is on its way."""
    has_slot: bool = True
    chunks: "Chunks | None" = None
    """Made with the first chunk; most bodies have none."""
    said: dict[str, Said] | None = None
    """What it has published: of each name the newest value that the store was given, and wrote or passed over."""
    beat: Callable[[], object] | None = None
    """Called with each heartbeat, in whichever thread the task runs."""
    _children: int = 0

    @property
    def group(self) -> Group:
        return self.info.run_id, self.is_claimed

    @property
    def key(self) -> str:
        return idempotency_text(self.info.run_id, self.info.step)

    def renew(self) -> None:
        """It begins, or begins again in the same attempt: what it calls has the same ids then."""
        self.is_reporting = False
        self._children = 0

    def tell(self, outcome: Outcome) -> Callable[[WarmRun], None]:
        """What takes its outcome into its run."""
        info = self.info
        told = partial(complete, step=info.step, attempt=info.attempt, outcome=outcome)
        return told if self.said is None else partial(self._tell_all, told)

    def _tell_all(self, told: Callable[..., None], run: WarmRun) -> None:
        told(run, published=[Publish(*said) for said in self.unheard(run.fence.epoch)])

    def unheard(self, right: int) -> Collection[Said]:
        """What it has published and the store may have passed over.

        There is none if this host has the run, or the work, by the same `right` as when the body began: by that
        epoch, or that claim. If not, somebody else may have had it in between.
        """
        first = self.claim if self.is_claimed else self.epoch
        return () if self.said is None or right == first else self.said.values()

    def tell_stopped(self, run: WarmRun) -> None:
        """Let its run know that its host has ended it, in order to stop."""
        stop(run, self.info.step, self.info.attempt)

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.life is None and not self.is_occupied

    @property
    def is_occupied(self) -> bool:
        """Whether something of it may go on though nobody waits for it."""
        return self.thread is not None or self.call is not None

    @property
    def is_over(self) -> bool:
        """Whether nobody wants anything more of it, though its code may go on."""
        return self.life is None or self.is_reporting

    def too_late(self, what: str, act: str) -> OutsideRun:
        """Why its code can't say anything any more."""
        info = self.info
        return OutsideRun(
            f"{what} when attempt {info.attempt} of task {self.task.name!r} ({info.step}) is over",
            f"{act} before the task returns, and before its timeout",
        )

    def nested(self) -> "NestedCall":
        self._children += 1
        return NestedCall(self, self.info, self._children - 1)

    def heartbeat(self) -> None:
        if self.beat is not None:
            self.beat()

    def publish(self, name: str, value: object) -> None:
        if self.is_over or self.home is None:
            raise self.too_late(f"{name!r} is published", "publish")
        self.home.publish(self, name, value)

    def append(self, name: str, value: object) -> None:
        self._require_chunks().append(name, value)

    def flush(self) -> Awaitable[None]:
        return self._require_chunks().flush()

    def _require_chunks(self) -> Chunks:
        assert self.home is not None  # noqa: S101 - it runs
        return self.chunks or self.home.chunks_of(self)


Report = Callable[[Body, Outcome], Awaitable[object] | None]


class NestedCall:
    """A task that a task calls: part of its body, under an id of its own. Implements `TaskContext`."""

    __slots__ = ("_body", "_children", "info")

    def __init__(self, body: Body, above: Info, number: int) -> None:
        step = StepId(f"{above.step}.{number}")
        self.info = Info(above.run_id, above.program, above.version, above.key, step, above.attempt)
        self._body = body
        self._children = 0

    @property
    def key(self) -> str:
        return idempotency_text(self.info.run_id, self.info.step)

    def nested(self) -> "NestedCall":
        self._children += 1
        return NestedCall(self._body, self.info, self._children - 1)

    def heartbeat(self) -> None:
        self._body.heartbeat()

    def publish(self, name: str, value: object) -> None:
        self._body.publish(name, value)

    def append(self, name: str, value: object) -> None:
        self._body.append(name, value)

    def flush(self) -> Awaitable[None]:
        return self._body.flush()
