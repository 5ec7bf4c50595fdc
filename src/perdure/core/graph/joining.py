"""Where paths join: what each of them brings, and what is there behind the join."""

from collections.abc import Iterable
from typing import Any

from perdure.core.codec import Codec
from perdure.core.errors import InputError
from perdure.core.graph.state import Join, Scope
from perdure.core.graph.vertex import Arrow


def joined(join: Join) -> Scope | None:
    """The scopes of the paths that were taken, as one: what each path changed counts, the later arrow's last.

    None if no path was taken.
    """
    found: Iterable[tuple[Arrow, Scope]] = (join.scopes[order] for order in sorted(join.scopes))
    merged: Scope | None = None
    for arrow, scope in found:
        if merged is None:
            merged = dict(scope)
            continue
        base: Scope = {} if arrow.since is None else scope[arrow.since]
        for name in scope:
            if name not in merged or (name in arrow.variables and _is_set(name, scope, base)):
                merged[name] = scope[name]
    return merged


def _is_set(name: str, scope: Scope, base: Scope) -> bool:
    """Whether the value is another one than before."""
    if name not in base:
        return True
    value, before = scope[name], base[name]
    return type(value) is not type(before) or bool(value != before)


def joined_variables(arrow: Arrow, scope: Scope) -> list[str]:
    """What a path brings to a join that was set on it, and that anybody reads from there on."""
    return [name for name in sorted(arrow.variables & arrow.target.needs) if name in scope]


def stored_form(codec: Codec, value: Any) -> bytes | None:
    """How a value is kept in the index; None if it has no stored form, such as an infinity: the run needs none."""
    try:
        return codec.encode(value)
    except InputError:
        return None
