"""Comprehensions: loops that count their iterations."""

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Union

from perdure.core.expressions.budget import Code, Evaluation
from perdure.core.expressions.plain import (
    SIZED,
    collect_limited,
    elements,
    pay_for_key,
    require_plain,
)

ItemAssigner = Callable[[Evaluation, Any], None]
"""Assigns an item of a loop to its variables."""


class ForClause(NamedTuple):
    """One `for` of a comprehension, with its `if`s. `inside` is the next one, or the result of each iteration."""

    source: Code
    item_assigner: ItemAssigner
    conditions: tuple[Code, ...]
    inside: Union["ForClause", Code]
    cost: int


def evaluate_lazily(work: Evaluation, loop: ForClause) -> Iterator[Any]:
    """The results, one by one. The outermost source is evaluated at once, as in Python."""
    return _rounds(work, loop, elements(loop.source(work)))


def _rounds(work: Evaluation, loop: ForClause, items: Iterator[Any]) -> Iterator[Any]:
    _, give, conditions, inside, cost = loop
    for item in items:
        work.left -= cost
        if work.left < 0:
            work.spend(0)
        give(work, item)
        for condition in conditions:
            if not condition(work):
                break
        else:
            if isinstance(inside, ForClause):
                yield from evaluate_lazily(work, inside)
            else:
                yield inside(work)


def evaluate_list(work: Evaluation, loop: ForClause) -> list[Any]:
    return collect_limited(work, evaluate_lazily(work, loop))


def evaluate_dict(work: Evaluation, loop: ForClause) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key, value in evaluate_lazily(work, loop):
        pay_for_key(work, key, len(made))
        made[key] = value
    work.require_items(len(made))
    return made


def item_assigner(
    target: ast.expr, variables: dict[str, int], new_place: Callable[[], int]
) -> ItemAssigner:
    """Returns a function that assigns an item to `target`, whose names get slots among the variables."""
    if isinstance(target, ast.Name):
        place = variables[target.id] = new_place()

        def give(work: Evaluation, item: Any) -> None:
            work.variables[place] = item

        return give
    if not isinstance(target, ast.Tuple | ast.List):
        raise TypeError(f"a loop over {type(target).__name__}, which no check lets pass")
    parts = [item_assigner(part, variables, new_place) for part in target.elts]

    def unpack(work: Evaluation, item: Any) -> None:
        if not isinstance(item, SIZED):
            require_plain(item)
            raise TypeError(f"cannot unpack non-iterable {type(item).__name__} object")
        if len(item) != len(parts):
            raise ValueError(f"expected {len(parts)} values to unpack, got {len(item)}")
        for part, value in zip(parts, item, strict=True):
            part(work, value)

    return unpack
