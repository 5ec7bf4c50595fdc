"""Starts of runs. The header Idempotency-Key is the start key: a repeated request starts nothing."""

from typing import Any

import msgspec

from perdure.api.endpoint import Reply
from perdure.api.exchange import Exchange
from perdure.api.problems import invalid
from perdure.api.runs.overview import RunResult, awaited_result
from perdure.api.storage.programs import program_of_path
from perdure.authoring.registry import find
from perdure.authoring.tags import TagValue
from perdure.client.admission_terms import StartTerms
from perdure.client.runs.handle import Handle
from perdure.client.runs.status import RunStatus
from perdure.client.start_keys import IfEnded
from perdure.core.errors import UnknownName


class StartRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to start. `input` holds the arguments by name, or, of a workflow, in order.

    `if_ended` says what happens if the run that holds the key failed or was cancelled: `return` gives that run, `rerun`
    starts another, `raise` refuses. `params` are the first values of the program's parameters. `priority`, `delay`,
    `approval`, `debounce` and `max_wait` say when the run may begin, in seconds, as those of `Engine.start`.
    """

    input: dict[str, Any] | list[Any] = {}
    scope: str = ""
    tags: dict[str, TagValue] = {}
    version: str | None = None
    if_ended: IfEnded = "return"
    params: dict[str, Any] = {}
    priority: int = 0
    delay: float | None = None
    approval: bool = False
    debounce: float | None = None
    max_wait: float | None = None

    @property
    def waits(self) -> bool:
        """Whether the run may wait for more than a limit."""
        return self.approval or self.delay is not None or self.debounce is not None

    @property
    def terms(self) -> StartTerms:
        """Those of its fields that the admission of the run takes."""
        return StartTerms(
            priority=self.priority,
            delay=self.delay,
            approval=self.approval,
            debounce=self.debounce,
            max_wait=self.max_wait,
        )


class StartedRun(RunResult, frozen=True, kw_only=True, omit_defaults=True):
    """The run that the start began, or that holds its key. The outcome is there if the caller waited for it."""

    is_new: bool


async def start_run(exchange: Exchange) -> Reply:
    body: StartRequest = exchange.body
    scope = body.scope or exchange.scope_of(None) or ""
    exchange.scope_of(scope)
    key = exchange.request.headers.get("idempotency-key")
    handle = await _begin(exchange, body, scope, key)
    found = RunResult(run_id=handle.run_id, status=RunStatus.RUNNING)
    status = 201 if handle.is_new else 200
    program = find("program", exchange.part("program"), body.version)
    may_wait = program is None or program.limit is not None or body.waits
    if exchange.wait_s or may_wait or not handle.is_new:
        row = await exchange.run(handle.run_id)
        awaited = await awaited_result(exchange, row)
        found = awaited.value
        if exchange.wait_s:
            status = awaited.status
    fields = {name: getattr(found, name) for name in found.__struct_fields__}
    headers = exchange.location(f"/v1/runs/{handle.run_id}")
    return Reply(StartedRun(**fields, is_new=handle.is_new), status, headers)


async def _begin(
    exchange: Exchange, body: StartRequest, scope: str, key: str | None
) -> Handle[Any]:
    engine, name = exchange.engine, exchange.part("program")
    options: dict[str, Any] = {
        "key": key,
        "scope": scope,
        "tags": body.tags,
        "if_ended": body.if_ended,
        **body.terms,
    }
    program = find("program", name, body.version)
    if program is None or (body.version is not None and program.version != body.version):
        if not isinstance(body.input, dict):
            program_of_path(exchange, body.version)
            raise invalid("input is a list", "pass the input of a graph by name")
        given = {**body.input, "params": body.params} if body.params else body.input
        try:
            return await engine.start_graph(name, given, version=body.version, **options)
        except UnknownName as error:
            raise UnknownName(
                error.what,
                "start the server as 'perdure serve MODULE:ENGINE', with the module that defines it",
            ) from None
    try:
        if isinstance(body.input, dict):
            call = program(**body.input)
        else:
            call = program(*body.input)
    except TypeError as error:
        raise invalid(error, "pass the parameters of the program") from None
    if body.params:
        call = call.with_params(body.params)
    return await engine.start(call, **options)
