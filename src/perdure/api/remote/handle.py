"""Handles over HTTP: the verbs of `Handle`, sent to a server."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from perdure.api.remote.transport import Transport, error_of
from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.program import Program
from perdure.authoring.response import OK
from perdure.authoring.signal import Signal, require_signal
from perdure.client.runs.fork_requests import ForkPreview
from perdure.client.runs.status import RunStatus
from perdure.core.codec import JsonCodec
from perdure.core.errors import RunCancelled, RunDiverged, RunFailed
from perdure.core.ids import RunId
from perdure.core.runs.acts import Decision
from perdure.core.runs.contract_event import ContractEvent
from perdure.core.runs.explaining import Explanation
from perdure.core.runs.snapshot import RunSnapshot

R = TypeVar("R")
T = TypeVar("T")

_WAIT_S = 30.0
"""How long one request waits for an outcome."""

_PAGE = 1000


class RemoteReceipt:
    """An act that is durable, and on its way to the run."""

    def __init__(self, transport: Transport, run_id: RunId, signal_id: str) -> None:
        self.signal_id = signal_id
        self._transport = transport
        self._path = f"/v1/runs/{run_id}/acts/{signal_id}"

    async def decision(self, timeout: Duration | None = None) -> Decision:  # noqa: ASYNC109 - as in Receipt
        """Wait for the decision of the run's owner. Raises `TimeoutError` if there is none in time."""
        limit_s = None if timeout is None else milliseconds(timeout, "timeout") / 1000
        pause_s = 0.02
        async with asyncio.timeout(limit_s):
            while True:
                status, content = await self._transport.send("GET", self._path)
                if status == 200:
                    return msgspec.json.decode(content, type=_Decided).decision
                await asyncio.sleep(pause_s)
                pause_s = min(1.0, 2 * pause_s)


class _Decided(msgspec.Struct):
    decision: Decision


class _Sent(msgspec.Struct):
    signal_id: str


class RemoteHandle(Generic[R]):
    """A run, over HTTP. Its methods are those of `Handle`; the caller's token says who acts."""

    def __init__(
        self,
        transport: Transport,
        run_id: RunId,
        program: Program[..., R] | None = None,
        *,
        is_new: bool = False,
    ) -> None:
        self.run_id = run_id
        self.is_new = is_new
        """Whether the start that returned this handle began the run."""
        self._transport = transport
        self._program = program
        self._path = f"/v1/runs/{run_id}"

    def __repr__(self) -> str:
        return f"<RemoteHandle {self.run_id}>"

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - as in Handle
        """Wait for the run to end and return its result, or raise `RunFailed` or `RunCancelled`.

        Raises `TimeoutError` if the run is not over in time. The run continues, and you can call `result` again.
        """
        limit_s = None if timeout is None else milliseconds(timeout, "timeout") / 1000
        async with asyncio.timeout(limit_s):
            while True:
                wait_s = _WAIT_S if limit_s is None else min(_WAIT_S, max(1.0, limit_s))
                status, content = await self._transport.send(
                    "GET", f"{self._path}/result", headers={"Prefer": f"wait={wait_s:.0f}"}
                )
                found: dict[str, Any] = msgspec.json.decode(content)
                if status == 200:
                    return self._outcome(found)
                if found["status"] in (RunStatus.DIVERGED, RunStatus.PARKED):
                    raise RunDiverged(
                        f"run {self.run_id!r} is {found['status']}", "see `explain` for the cause"
                    )

    def _outcome(self, found: dict[str, Any]) -> R:
        if found["status"] == RunStatus.COMPLETED:
            value: Any = found.get("result")
            if self._program is None:
                return value  # type: ignore[no-any-return]
            codec = JsonCodec()
            unpacked: R = self._program.signature.unpack_result(codec, codec.encode(value))
            return unpacked
        if found["status"] == RunStatus.CANCELLED:
            raise RunCancelled.of(self.run_id, found.get("reason", ""))
        error = found.get("error") or {}
        code, message = error.get("code", "an error"), error.get("message", "")
        raise RunFailed(
            f"run {self.run_id!r} failed: {code}: {message}",
            "see its history",
            code,
            message,
            error.get("traceback", ""),
        )

    async def status(self) -> RunStatus:
        """The status of the run; of a chain, that of its last run."""
        return RunStatus((await self._transport.read(self._path, dict[str, Any]))["status"])

    async def signal(self, signal: Signal[T], value: T, *, id: str | None = None) -> None:  # noqa: A002 - as in Handle
        """Send the run a signal; returns when it is durable. Two signals with the same `id` are one."""
        payload = require_signal(signal).encode(JsonCodec(), value)
        body = {"name": signal.name, "value": msgspec.Raw(payload), "id": id}
        await self._transport.send("POST", f"{self._path}/signals", body)

    async def respond(
        self,
        step: str,
        value: object = None,
        *,
        code: int = OK,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> None:
        """Answer a step of a graph whose task responds with 202."""
        body = {"value": value, "code": code, "id": id}
        await self._transport.send("POST", f"{self._path}/steps/{step}/respond", body)

    async def explain(self) -> Explanation:
        """Why the run does not move, what happens next by itself, and the command that moves it."""
        return await self._transport.read(f"{self._path}/explain", Explanation)

    async def view(self) -> RunSnapshot:
        """The state of the run as one immutable value, with all its steps."""
        return await self._transport.read(f"{self._path}/view", RunSnapshot)

    async def published(self) -> dict[str, Any]:
        """The newest value of each name that the runs of the chain have published."""
        found = await self._transport.read(f"{self._path}/published", dict[str, Any])
        values: dict[str, Any] = found["values"]
        return values

    async def history(self, first: int = 0) -> AsyncGenerator[ContractEvent, None]:
        """Yield the run's events from `offset` `first` on, as far as they are durable now."""
        following: int | None = first
        while following is not None:
            query = {"first": following, "limit": _PAGE}
            page = await self._transport.read(f"{self._path}/history", _Page, query)
            for event in page.events:
                yield event
            following = page.next

    async def follow(self, first: int = 0) -> AsyncGenerator[ContractEvent, None]:
        """Yield the run's events from `offset` `first` on, and each new one when it is durable, to the end."""
        path, query = f"{self._path}/history", {"first": first}
        async with self._transport.events(path, query) as events:
            async for name, data in events:
                if name == "entry":
                    yield msgspec.json.decode(data, type=ContractEvent)
                elif name == "problem":
                    raise error_of(500, data)

    async def pause(
        self,
        reason: str = "",
        *,
        id: str | None = None,  # noqa: A002 - as in Handle
        descends: bool = False,
    ) -> RemoteReceipt:
        """Pause the run: nothing begins, and the program does not advance, until `resume`."""
        return await self._act("PAUSE", reason, id, descends=descends)

    async def resume(
        self,
        reason: str = "",
        *,
        id: str | None = None,  # noqa: A002 - as in Handle
        descends: bool = False,
    ) -> RemoteReceipt:
        """End a pause."""
        return await self._act("RESUME", reason, id, descends=descends)

    async def cancel(self, reason: str = "", *, id: str | None = None) -> RemoteReceipt:  # noqa: A002 - as in Handle
        """Request the run's cancellation."""
        return await self._act("CANCEL", reason, id)

    async def approve(self, reason: str = "", *, id: str | None = None) -> RemoteReceipt:  # noqa: A002 - as in Handle
        """Approve a run that waits for approval before it begins."""
        return await self._act("APPROVE", reason, id)

    async def emergency_stop(self, reason: str = "", *, id: str | None = None) -> RemoteReceipt:  # noqa: A002 - as in Handle
        """End the run as cancelled at once: no clean-up step runs."""
        return await self._act("EMERGENCY_STOP", reason, id)

    async def retry_step(
        self,
        step: str,
        reason: str = "",
        *,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> RemoteReceipt:
        """Begin the next logical attempt of a parked step."""
        return await self._act("RETRY_STEP", reason, id, step=step)

    async def skip_step(
        self,
        step: str,
        reason: str = "",
        *,
        id: str | None = None,  # noqa: A002 - as in Handle
        **value: Any,
    ) -> RemoteReceipt:
        """Settle a parked step without executing it: the program gets `value`, if one is given."""
        return await self._act("SKIP_STEP", reason, id, step=step, **value)

    async def _act(
        self,
        kind: str,
        reason: str,
        act_id: str | None,
        **more: Any,
    ) -> RemoteReceipt:
        body = {"type": kind, "reason": reason, "id": act_id, **more}
        _, content = await self._transport.send(
            "POST", f"{self._path}/acts", body, headers={"Prefer": "wait=0"}
        )
        signal_id = msgspec.json.decode(content, type=_Sent).signal_id
        return RemoteReceipt(self._transport, self.run_id, signal_id)

    async def fork(
        self,
        step: str = "root",
        *,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - as in Handle
        input: Mapping[str, Any] | None = None,  # noqa: A002 - as in Handle
        signals: bool = True,
        reason: str = "",
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> "RemoteHandle[R]":
        """Start a new run that has done what this one had done before `step`, and executes the step again."""
        body = {"step": step, "set": set or {}, "input": input, "signals": signals}
        _, content = await self._transport.send(
            "POST", f"{self._path}/fork", {**body, "reason": reason, "id": id}
        )
        run_id = RunId(msgspec.json.decode(content)["run_id"])
        return RemoteHandle(self._transport, run_id, self._program)

    async def preview_fork(self, step: str = "root", **options: Any) -> ForkPreview:
        """What `fork` would do."""
        body = {"step": step, **options, "dry_run": True}
        _, content = await self._transport.send("POST", f"{self._path}/fork", body)
        return msgspec.json.decode(content, type=ForkPreview)


class _Page(msgspec.Struct):
    events: list[ContractEvent]
    next: int | None
