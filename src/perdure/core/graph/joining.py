"""Joins of paths: merging their scopes, and the items of spreads."""

from collections.abc import Iterable
from typing import Any

from perdure.core.codec import Codec
from perdure.core.errors import InputError
from perdure.core.graph.state import Join, VariableScope
from perdure.core.graph.vertex import Arrow


def joined(join: Join) -> VariableScope | None:
    """Merge the scopes of the paths that were taken; None if there are none.

    A variable that a path changed since the paths parted wins over an unchanged one; of several changes the one of
    the later arrow wins.
    """
    found: Iterable[tuple[Arrow, VariableScope]] = (
        join.scopes[order] for order in sorted(join.scopes)
    )
    merged: VariableScope | None = None
    for arrow, scope in found:
        if merged is None:
            merged = dict(scope)
            continue
        base: VariableScope = {} if arrow.since is None else scope[arrow.since]
        for name in scope:
            if name not in merged or (name in arrow.variables and _is_set(name, scope, base)):
                merged[name] = scope[name]
    return merged


def _is_set(name: str, scope: VariableScope, base: VariableScope) -> bool:
    """Whether the path changed the variable."""
    if name not in base:
        return True
    value, before = scope[name], base[name]
    return type(value) is not type(before) or bool(value != before)


def joined_variables(arrow: Arrow, scope: VariableScope) -> list[str]:
    """Variables that the path may have set and that the join, or a vertex behind it, reads."""
    return [name for name in sorted(arrow.variables & arrow.target.needs) if name in scope]


def stored_form(codec: Codec, value: Any) -> bytes | None:
    """The encoded value for the inbox table; None without a JSON form (infinity): the run does not need the row."""
    try:
        return codec.encode(value)
    except InputError:
        return None


def join_item(
    join: Join, arrow: Arrow, item: int, scope: VariableScope | None
) -> VariableScope | None:
    """The scope of a spread's item once all its arrows are resolved; None before, and if all were skipped."""
    required = arrow.target.required
    if required == 1:
        return scope
    part = join.parts.setdefault(item, Join(required))
    part.resolved += 1
    if scope is not None:
        part.scopes[arrow.order] = arrow, scope
    if part.resolved < required:
        return None
    del join.parts[item]
    return joined(part)


def spread_items(value: Any) -> list[Any] | tuple[Any, ...]:
    """The items that a spread iterates over."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict | str):
        return list(value)
    raise TypeError(f"a spread over {type(value).__name__}, which has no items")
