"""Errors as `application/problem+json`: a code, what happened, the remedy, and the command that does the same."""

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import msgspec
from starlette.responses import Response

from perdure.api.encoding import json_bytes
from perdure.core import errors as known

log = logging.getLogger("perdure.api")

_NONE: Mapping[str, str] = MappingProxyType({})


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an answer to a request that was refused or failed.

    `code` never changes; `remedy` says what to do next. `command` does the same as the request on the command line.
    `limit` names the limit that refused it, `denial` is the code of an authorizer, `run_id` the run that holds a key.
    `retry_after` is how many seconds a start over a limit should wait.
    """

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    remedy: str
    command: str = ""
    instance: str = ""
    limit: str = ""
    denial: str = ""
    run_id: str = ""
    run_status: str = ""
    retry_after: float = 0


class Refusal(Exception):
    """Refuses a request with a problem of the API's own."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        remedy: str,
        headers: Mapping[str, str] = _NONE,
        limit: str = "",
    ) -> None:
        super().__init__(detail, remedy)
        self.status = status
        self.code = code
        self.detail = detail
        self.remedy = remedy
        self.headers = headers
        self.limit = limit


_STATUSES: Final[tuple[tuple[type[known.PerdureError], int], ...]] = (
    # The first class that an error is of decides.
    (known.UnknownRun, 404),
    (known.InvalidId, 404),
    (known.UnknownName, 404),
    (known.UnknownSchedule, 404),
    (known.UnknownVersion, 404),
    (known.UnknownStep, 404),
    (known.UnknownOperation, 404),
    (known.ArtifactMissing, 404),
    (known.KeyReused, 409),
    (known.KeySpent, 409),
    (known.SignalReused, 409),
    (known.VersionExists, 409),
    (known.RunClosed, 409),
    (known.NotActive, 409),
    (known.ForkDiverged, 409),
    (known.RunDiverged, 409),
    (known.PayloadTooLarge, 413),
    (known.TooManyActs, 429),
    (known.LimitReached, 429),
    (known.Denied, 403),
    (known.InputError, 422),
    (known.TransactionError, 422),
    (known.EngineClosed, 503),
    (known.StoreDamaged, 500),
    (known.StoreError, 503),
)

_LIMITS: Final[Mapping[type[known.PerdureError], str]] = {
    known.TooManyActs: "acts of one run",
    known.LimitReached: "starts of one limit",
}

RETRY_AFTER_S: Final = 5
"""When to try again after a store that can't be reached."""


def status_of(error: known.PerdureError) -> int:
    """The status code of an error; 500 for one that no caller can cause."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def problem_of(error: Exception, instance: str, command: str) -> tuple[Problem, Mapping[str, str]]:
    """The problem that an exception stands for, and headers of the answer. An unforeseen error gives no details."""
    if isinstance(error, Refusal):
        problem = Problem(
            title=HTTPStatus(error.status).phrase,
            status=error.status,
            code=error.code,
            detail=error.detail,
            remedy=error.remedy,
            command=command,
            instance=instance,
            limit=error.limit,
        )
        return problem, error.headers
    if isinstance(error, known.PerdureError):
        status = status_of(error)
        retry_after = error.retry_after if isinstance(error, known.LimitReached) else 0
        headers: dict[str, str] = {}
        if status in (429, 503):
            wait_s = math.ceil(retry_after) or (60 if status == 429 else RETRY_AFTER_S)
            headers["Retry-After"] = str(wait_s)
        problem = Problem(
            title=HTTPStatus(status).phrase,
            status=status,
            code=error.code,
            detail=error.what,
            remedy=error.remedy,
            command=command,
            instance=instance,
            limit=_LIMITS.get(type(error), ""),
            denial=error.reason_code if isinstance(error, known.Denied) else "",
            run_id=getattr(error, "run_id", None) or "",
            run_status=error.status if isinstance(error, known.KeySpent) else "",
            retry_after=retry_after,
        )
        return problem, headers
    log.error("%s failed", instance, exc_info=error)
    problem = Problem(
        title=HTTPStatus(500).phrase,
        status=500,
        code="internal",
        detail="the server failed to answer",
        remedy="see the log of the server",
        instance=instance,
    )
    return problem, _NONE


def problem_response(problem: Problem, headers: Mapping[str, str] = _NONE) -> Response:
    return Response(
        json_bytes(problem), problem.status, dict(headers), media_type="application/problem+json"
    )


def invalid(detail: Any, remedy: str) -> Refusal:
    """A value that the route can't take."""
    return Refusal(422, "input", str(detail), remedy)
