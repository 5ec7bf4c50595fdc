"""Reads `--where "status=failed program=checkout tag.customer=acme created>2h"`: the filters of a list.

Conditions are separated by spaces and must all apply; values with spaces are quoted as in a shell. A duration after
`created` or `closed` is an age: `created>2h` is older than two hours, `created<2h` younger. A date is an instant:
`created>2026-01-31` is later than that.
"""

import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from perdure.core.errors import InputError
from perdure.core.texts import require_storable_text

TEXTS: Final = (
    *("status", "program", "version", "scope", "key_prefix", "parent", "chain", "forked_from"),
    *("waiting_for", "error"),
)
TIMES: Final = ("created", "closed")
TAG: Final = "tag."

_CONDITION = re.compile(r"([A-Za-z_][\w.-]*)(<=|>=|!=|=|<|>)(.*)", re.DOTALL)
_AGE = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

Filters = dict[str, Any]
"""Keyword arguments of `engine.runs`."""


def parse_where(text: str, now_ms: int) -> Filters:
    """The filters that a condition names. Raises `InputError` that says which part is wrong."""
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise InputError(f"{text!r} has an open quotation ({error})", "close it") from None
    filters: Filters = {}
    for part in parts:
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise InputError(f"{part!r} is no condition", "write FIELD=VALUE, or created>2h")
        _add(filters, match[1], match[2], match[3], now_ms)
    return filters


def _add(filters: Filters, field: str, operator: str, value: str, now_ms: int) -> None:
    require_storable_text("condition", value)
    if field in TIMES:
        _add_time(filters, field, operator, value, now_ms)
        return
    if operator != "=":
        raise InputError(
            f"{field}{operator}{value} compares what has no order",
            f"use =; < and > are for {' and '.join(TIMES)}",
        )
    if field.startswith(TAG):
        tags: dict[str, str] = filters.setdefault("tags", {})
        _set(tags, field.removeprefix(TAG), value, field)
    elif field == "status":
        _set(filters, field, value.split(",") if "," in value else value, field)
    elif field == "parked":
        if value not in ("true", "false"):
            raise InputError(f"parked={value}", "write parked=true or parked=false")
        _set(filters, field, value == "true", field)
    elif field in TEXTS:
        _set(filters, field, value, field)
    else:
        known = ", ".join((*TEXTS, "parked", *TIMES, f"{TAG}NAME"))
        raise InputError(f"{field!r} is no filter of runs", f"use one of {known}")


def _set(filters: dict[str, Any], name: str, value: object, field: str) -> None:
    if name in filters:
        raise InputError(f"{field} is given twice", "all conditions must apply: give it once")
    filters[name] = value


def _add_time(filters: Filters, field: str, operator: str, value: str, now_ms: int) -> None:
    """Narrow the range of a time. An age turns the comparison round: what is older began earlier."""
    age = _AGE.fullmatch(value)
    if age is not None:
        at = _ago(now_ms, float(age[1]), _UNITS[age[2]], value)
        is_lower = operator in ("<", "<=")
    else:
        at = _instant(field, value)
        is_lower = operator in (">", ">=")
    if operator not in ("<", "<=", ">", ">="):
        raise InputError(f"{field}{operator}{value}", f"use {field}>{value} or {field}<{value}")
    lower, upper = filters.get(field, (None, None))
    taken = lower if is_lower else upper
    if taken is not None:
        raise InputError(f"{field} has two limits on one side", "give one")
    filters[field] = (at, upper) if is_lower else (lower, at)


def _ago(now_ms: int, count: float, unit: str, value: str) -> datetime:
    try:
        return datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(**{unit: count})
    except (OverflowError, ValueError):
        raise InputError(f"{value!r} is too long ago", "use a shorter time") from None


def _instant(field: str, value: str) -> datetime:
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise InputError(
            f"{value!r} is no time for {field}",
            "write an age such as 90s, 15m, 2h, 3d or 1w, or a time such as 2026-01-31T12:00",
        ) from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def merged(filters: Filters, more: Mapping[str, Any]) -> Filters:
    """The filters of `--where` and those of the other options. One filter may not be in both."""
    found = dict(filters)
    for name, value in more.items():
        if value is None or value == {}:
            continue
        if name == "tags":
            tags = found.setdefault("tags", {})
            for tag, wanted in value.items():
                _set(tags, tag, wanted, f"{TAG}{tag}")
        else:
            _set(found, name, value, name)
    return found
