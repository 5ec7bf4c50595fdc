"""Operator acts, for sync code."""

from collections.abc import Coroutine, Mapping
from typing import Any, Generic, Protocol, TypeVar

from perdure.authoring.durations import Duration
from perdure.client.runs.acts import NO_VALUE, Receipt
from perdure.client.runs.handle import Handle
from perdure.core.runs.acts import Actor, Decision

R = TypeVar("R")
T = TypeVar("T")


class _Waiting(Protocol):
    """The sync engine, as far as acts need it."""

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T: ...


class SyncReceipt:
    """A `Receipt`, for sync code."""

    def __init__(self, engine: _Waiting, receipt: Receipt) -> None:
        self._engine = engine
        self._receipt = receipt

    def __repr__(self) -> str:
        return f"<Sync{repr(self._receipt)[1:]}"

    @property
    def signal_id(self) -> str:
        return self._receipt.signal_id

    def decision(self, timeout: Duration | None = None) -> Decision:
        return self._engine.wait_for(self._receipt.decision(timeout))


class SyncActs(Generic[R]):
    """The acts of a handle. Each method is the sync form of the same method of `Handle`."""

    _engine: _Waiting
    _handle: Handle[R]

    def _wait(self, sending: Coroutine[Any, Any, Receipt]) -> SyncReceipt:
        return SyncReceipt(self._engine, self._engine.wait_for(sending))

    def pause(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in Handle
        descends: bool = False,
    ) -> SyncReceipt:
        return self._wait(self._handle.pause(reason, by=by, id=id, descends=descends))

    def resume(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in Handle
        descends: bool = False,
    ) -> SyncReceipt:
        return self._wait(self._handle.resume(reason, by=by, id=id, descends=descends))

    def cancel(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> SyncReceipt:
        return self._wait(self._handle.cancel(reason, by=by, id=id))

    def emergency_stop(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> SyncReceipt:
        return self._wait(self._handle.emergency_stop(reason, by=by, id=id))

    def approve(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> SyncReceipt:
        return self._wait(self._handle.approve(reason, by=by, id=id))

    def retry_step(
        self,
        step: str,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> SyncReceipt:
        return self._wait(self._handle.retry_step(step, reason, by=by, id=id))

    def skip_step(
        self,
        step: str,
        reason: str = "",
        *,
        value: Any = NO_VALUE,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> SyncReceipt:
        return self._wait(self._handle.skip_step(step, reason, value=value, by=by, id=id))

    def update_params(
        self,
        values: Mapping[str, Any],
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> SyncReceipt:
        return self._wait(self._handle.update_params(values, reason, by=by, id=id))
