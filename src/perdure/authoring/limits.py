"""Limits that programs declare: how many of their runs are open at a time, and how many begin in a time."""

from collections.abc import Callable
from typing import Any, Final, TypedDict, Unpack

from perdure.authoring.definition import require_name
from perdure.authoring.durations import Duration, milliseconds
from perdure.core.admission.rules import OVER, Over, Pace, Rules, slot_name
from perdure.core.errors import InputError
from perdure.core.limits import MAX_KEY_LENGTH

MOST: Final = 1_000_000
"""Slots of one limit and key at most: admission counts the runs that hold them."""


class Rate:
    """How many runs may begin: `Rate(500, per=60)` is 500 in a minute, at an even pace. `burst` of them may begin at
    once; without it, all of them."""

    def __init__(self, count: int, *, per: Duration, burst: int | None = None) -> None:
        self.count = _whole("the count of a rate", count, 1)
        per_ms = milliseconds(per, "per")
        if not per_ms:
            raise InputError(f"per is {per!r}", "pass a positive number of seconds")
        self.burst = self.count if burst is None else _whole("burst", burst, 1)
        self.per = per
        self.pace = Pace(self.count, per_ms, self.burst)

    def __repr__(self) -> str:
        return f"Rate({self.count}, per={self.per!r}, burst={self.burst})"


class LimitOptions(TypedDict, total=False):
    """The rarer options of a limit."""

    queued: int | None
    retry_after: Duration
    spans_scopes: bool


class Limit:
    """A limit on the runs of a program: `@workflow(limit=Limit("sync", running=1, by=lambda customer: customer))`.

    `running` is how many runs may be open at a time, and `rate` how many may begin. It counts by the key that `by`
    returns for the arguments of the program, and in each scope on its own unless it `spans_scopes`. Programs that
    declare limits of the same name share them.

    `over` decides what a start does when no slot is free. "queue": the run is pending, and begins in its turn.
    "reject": the start raises `LimitReached`. "delay": the run waits for as long as a rejected start would be advised
    to, and then in the line. "replace": the oldest run that holds the slot is cancelled, and so are those that wait.
    "join": the start returns the run that holds the slot. `queued` is how many may wait: further starts are rejected.
    `retry_after` is what rejected starts are advised to wait, where no rate says it.
    """

    def __init__(
        self,
        name: str,
        *,
        running: int | None = None,
        rate: Rate | None = None,
        by: Callable[..., Any] | None = None,
        over: Over = "queue",
        **more: Unpack[LimitOptions],
    ) -> None:
        """`more` are `queued`, `retry_after` and `spans_scopes`."""
        if unknown := sorted(more.keys() - LimitOptions.__annotations__.keys()):
            raise TypeError(f"Limit() got an unexpected keyword argument {unknown[0]!r}")
        queued, spans = more.get("queued"), more.get("spans_scopes", False)
        self.name = require_name("limit", name)
        if running is None and rate is None:
            raise InputError(
                f"limit {name!r} limits nothing", "pass running=..., or rate=Rate(...)"
            )
        if rate is not None and not isinstance(rate, Rate):
            raise InputError(f"rate is {rate!r:.100}", "pass Rate(count, per=seconds)")
        if over not in OVER:
            raise InputError(f"over is {over!r:.100}", f"use one of {', '.join(map(repr, OVER))}")
        if by is not None and not callable(by):
            raise InputError(f"by is {by!r:.100}", "pass a function of the program's arguments")
        if not isinstance(spans, bool):
            raise InputError(f"spans_scopes is {spans!r}", "pass True or False")
        self.by = by
        self.spans_scopes = spans
        self.rules = Rules(
            None if running is None else _whole("running", running, 0),
            None if queued is None else _whole("queued", queued, 0),
            over,
            None if rate is None else rate.pace,
            max(1, milliseconds(more.get("retry_after", 1.0), "retry_after")),
        )

    def __repr__(self) -> str:
        return f"<Limit {self.name!r}>"

    def slot(self, scope: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The slot in which a start counts."""
        key = "" if self.by is None else self.by(*args, **kwargs)
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise InputError(
                f"limit {self.name!r} counts by {key!r:.100}, a {type(key).__name__}",
                "let its `by` return a text or a whole number",
            )
        if len(text := str(key)) > MAX_KEY_LENGTH:
            raise InputError(
                f"limit {self.name!r} counts by a key of {len(text)} characters",
                f"let its `by` return at most {MAX_KEY_LENGTH}",
            )
        return slot_name(self.name, None if self.spans_scopes else scope, text)


def require_limit(limit: object) -> Limit | None:
    if limit is None or isinstance(limit, Limit):
        return limit
    raise InputError(f"limit is {limit!r:.100}", "pass perdure.Limit(...)")


def _whole(what: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise InputError(f"{what} is {value!r:.100}", f"pass a whole number from {least} to {MOST}")
    return value
