"""A server of the Model Context Protocol: an assistant lists and explains runs, and acts on them as its role allows.

`perdure mcp` serves it on standard input and output. Needs `perdure[mcp]`.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from perdure.authoring.request import Request
from perdure.authoring.signal import Signal
from perdure.client.engine import Engine
from perdure.client.runs.handle import Handle
from perdure.core.errors import InputError, PerdureError
from perdure.core.runs.acts import Actor
from perdure.core.runs.authority import ROLES

MAX_ROWS: Final = 100
"""Runs or entries in one answer: an assistant reads all of it."""

_INSTRUCTIONS: Final = (
    "Perdure runs durable workflows. List runs to find one, explain it to learn why it does not move, and what moves "
    "it. Values are JSON. A `call_id` makes a repeated request, signal or act safe: use one for each intention."
)
_READS: Final = ToolAnnotations(read_only_hint=True)
_ACTS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False)
_ENDS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True)

T = TypeVar("T")
Tool = Callable[..., Awaitable[Any]]


def mcp_server(engine: Engine, *, role: str = "viewer", name: str = "assistant") -> MCPServer:
    """A server for one assistant, called `name`, over an open engine.

    It offers the tools that `role` may use: a viewer reads, an operator also sends signals and requests, pauses,
    resumes and cancels, an engineer also forks. Acts are decided by the engine's authorizer too; give it `Roles()`.
    """
    if role not in ROLES:
        raise InputError(f"{role!r} is not a role", f"use one of {', '.join(sorted(ROLES))}")
    server = MCPServer("perdure", instructions=_INSTRUCTIONS)
    tools = _Tools(engine, Actor(name, role))
    allowed: list[tuple[Tool, ToolAnnotations]] = [
        (each, _READS) for each in (tools.list_runs, tools.explain_run, tools.describe_run)
    ]
    allowed.append((tools.read_history, _READS))
    if role != "viewer":
        allowed += [(each, _ACTS) for each in (tools.send_signal, tools.ask_run)]
        allowed += [(each, _ACTS) for each in (tools.pause_run, tools.resume_run)]
        allowed.append((tools.cancel_run, _ENDS))
    if role in {"engineer", "admin"}:
        allowed.append((tools.fork_run, _ACTS))
    for tool, annotations in allowed:
        server.tool(annotations=annotations)(tool)
    return server


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)


class _Tools:
    """The tools. Their docstrings and parameters are what the assistant reads."""

    def __init__(self, engine: Engine, actor: Actor) -> None:
        self._engine = engine
        self._actor = actor

    async def list_runs(
        self,
        status: str | None = None,
        program: str | None = None,
        waiting_for: str | None = None,
        tags: dict[str, str] | None = None,
        after: str | None = None,
        limit: int = 20,
    ) -> dict[str, Any]:
        """List runs, the newest first.

        Filter by status (running, blocked, paused, completed, failed, cancelled, diverged, parked), by the name of the
        program, by the name of the signal that runs wait for, or by tags. `after` is the cursor of the page before.
        """
        filters: dict[str, Any] = {
            "status": status,
            "program": program,
            "waiting_for": waiting_for,
            "tags": tags,
        }
        given = {key: value for key, value in filters.items() if value is not None}
        page = self._engine.runs(after=after, limit=min(limit, MAX_ROWS), **given)
        found: dict[str, Any] = _plain(await _answered(page))
        return found

    async def explain_run(self, run_id: str) -> dict[str, Any]:
        """Why a run does not move, what happens next by itself, and the command that moves it."""
        found: dict[str, Any] = _plain(await _answered(self._handle(run_id).explain()))
        return found

    async def describe_run(self, run_id: str) -> dict[str, Any]:
        """The state of a run, and what it waits for: signals with what they ask a person, timers, tasks, children."""
        described = await _answered(self._handle(run_id).describe())
        return {**_plain(described), "text": str(described)}

    async def read_history(self, run_id: str, first: int = 0, limit: int = 50) -> list[str]:
        """What happened in a run, in order, from entry number `first` on: one line for each entry."""
        lines: list[str] = []

        async def read() -> None:
            async for entry in self._handle(run_id).events(first, follow=False):
                lines.append(str(entry))
                if len(lines) >= min(limit, MAX_ROWS):
                    return

        await _answered(read())
        return lines

    async def send_signal(
        self, run_id: str, name: str, value: Any = None, call_id: str | None = None
    ) -> str:
        """Send a run a signal with a value. Two signals with the same `call_id` are one."""
        await _answered(self._handle(run_id).signal(Signal(name, object), value, id=call_id))
        return f"sent signal {name!r}"

    async def ask_run(
        self,
        run_id: str,
        name: str,
        value: Any = None,
        call_id: str | None = None,
        timeout: float = 30,  # noqa: ASYNC109 - what the assistant chooses
    ) -> Any:
        """Send a run a request with a value, and return its reply. With the same `call_id` it is the same request."""
        request = Request(name, object, object)
        asking = self._handle(run_id).ask(request, value, id=call_id, timeout=timeout)
        return _plain(await _answered(asking))

    async def pause_run(
        self, run_id: str, reason: str, call_id: str | None = None
    ) -> dict[str, Any]:
        """Pause a run: nothing begins until it is resumed."""
        return await self._act(self._handle(run_id).pause, reason, call_id)

    async def resume_run(
        self, run_id: str, reason: str, call_id: str | None = None
    ) -> dict[str, Any]:
        """Resume a paused run."""
        return await self._act(self._handle(run_id).resume, reason, call_id)

    async def cancel_run(self, run_id: str, reason: str) -> dict[str, Any]:
        """Cancel a run for good. It may clean up."""
        return await self._act(self._handle(run_id).cancel, reason, None)

    async def fork_run(
        self,
        run_id: str,
        reason: str,
        step: str = "root",
        call_id: str | None = None,
    ) -> str:
        """Start a new run that has done what this run had done when `step` ended, and executes the step again.

        Without a step it starts from the beginning. Returns the id of the new run. With the same `call_id` it is the
        same fork.
        """
        forking = self._handle(run_id).fork(step, reason=reason, by=self._actor, id=call_id)
        return (await _answered(forking)).run_id

    async def _act(
        self, act: Callable[..., Awaitable[Any]], reason: str, act_id: str | None
    ) -> dict[str, Any]:
        more = {} if act_id is None else {"id": act_id}
        receipt = await _answered(act(reason, by=self._actor, **more))
        decision: dict[str, Any] = _plain(await _answered(receipt.decision(timeout=30)))
        return decision

    def _handle(self, run_id: str) -> Handle[Any]:
        try:
            return self._engine.handle(run_id)
        except PerdureError as error:
            raise ToolError(str(error)) from error


async def _answered(work: Awaitable[T]) -> T:
    """The result; an error of Perdure is one that the assistant reads."""
    try:
        return await work
    except (PerdureError, TimeoutError) as error:
        raise ToolError(str(error)) from error
