"""Parameters of requests: query strings and JSON bodies as structures."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, cast, get_origin, get_type_hints

import msgspec

from perdure.api.problems import Refusal, invalid
from perdure.client.runs.lists import RunFilters
from perdure.core.errors import InputError
from perdure.core.ids import is_run_id
from perdure.core.runs.listing import MAX_LIMIT
from perdure.core.runs.where import parse_where

S = TypeVar("S", bound=msgspec.Struct)

Pairs = Sequence[tuple[str, str]]
"""The parameters of a query string, in order."""

TAG: Final = "tag."

_TEXTS: Final = (
    *("program", "version", "scope", "key_prefix", "parent", "chain", "forked_from"),
    *("waiting_for", "error"),
)
_TAG_TEXT: Final = re.compile(r"([^=\s]+)=(.*)", re.DOTALL)


def read_query(wanted: type[S], pairs: Pairs) -> S:
    """The query as a structure. Refuses parameters that the route does not have: a mistyped filter would not filter."""
    hints = get_type_hints(wanted)
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name.startswith(TAG) and "tags" in hints:
            values.setdefault("tags", {})[name.removeprefix(TAG)] = value
        elif name not in hints or name == "tags":
            known = ", ".join(each for each in hints if each != "tags") or "none"
            raise invalid(f"there is no parameter {name!r:.100}", f"use one of: {known}")
        elif get_origin(hints[name]) is list:
            values.setdefault(name, []).extend(value.split(","))
        elif hints[name] == datetime | None:
            values[name] = _instant(name, value)
        else:
            values[name] = value
    try:
        return msgspec.convert(values, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error, "correct the parameter") from None


def read_body(wanted: type[S], content: bytes) -> S:
    """The body as a structure."""
    try:
        return msgspec.json.decode(content or b"{}", type=wanted)
    except msgspec.ValidationError as error:
        raise invalid(error, "see the schema of the body in /openapi.json") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(
            400, "malformed", f"the body is not JSON ({error})", "send one JSON object in UTF-8"
        ) from None


class PageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a list. `after` is the `cursor` of the part before."""

    after: str | None = None
    limit: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MAX_LIMIT:
            raise ValueError(f"limit is {self.limit}: pass a number from 1 to {MAX_LIMIT}")


class RunsQuery(PageQuery, frozen=True, kw_only=True):
    """Filters of runs; all of them must apply. `tag.NAME=VALUE` finds runs by a tag.

    `where` is a condition as the command line has it. `text` finds a run by its id, by a tag as NAME=VALUE, or by the
    beginning of its key. `fields` names the fields to show.
    """

    status: list[str] = []
    program: str | None = None
    version: str | None = None
    scope: str | None = None
    key_prefix: str | None = None
    tags: dict[str, str] = {}
    parent: str | None = None
    chain: str | None = None
    forked_from: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    closed_from: datetime | None = None
    closed_to: datetime | None = None
    parked: bool | None = None
    waiting_for: str | None = None
    error: str | None = None
    where: str | None = None
    text: str | None = None
    fields: list[str] = []


def filters_of(query: RunsQuery, now_ms: int) -> RunFilters:
    """The filters that a query names. One filter may not be in `where` and in a parameter of its own."""
    filters: dict[str, Any] = {} if query.where is None else parse_where(query.where, now_ms)
    for name in _TEXTS:
        _add(filters, name, getattr(query, name))
    _add(filters, "parked", query.parked)
    _add(filters, "status", query.status or None)
    for name in ("created", "closed"):
        ends = [_aware(getattr(query, f"{name}_{end}")) for end in ("from", "to")]
        _add(filters, name, tuple(ends) if any(ends) else None)
    tags = {**filters.get("tags", {}), **query.tags}
    if query.text:
        _add_text(filters, tags, query.text)
    if tags:
        filters["tags"] = tags
    return cast(RunFilters, filters)


def _add(filters: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        return
    if name in filters:
        raise InputError(f"{name} is given twice", "all filters must apply: give it once")
    filters[name] = value


def _add_text(filters: dict[str, Any], tags: dict[str, str], text: str) -> None:
    tagged = _TAG_TEXT.fullmatch(text)
    if is_run_id(text):
        _add(filters, "chain", text)
    elif tagged is not None:
        tags[tagged[1]] = tagged[2]
    else:
        _add(filters, "key_prefix", text)


def _instant(name: str, value: str) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise invalid(
            f"{name} is {value!r:.100}", "write a time such as 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from None


def _aware(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at
