"""The tasks, the workflow and the errors of the corpus. Tasks are pure, so programs can run many times."""

from dataclasses import dataclass
from typing import Any

from perdure import task, workflow


class Refused(Exception):
    """An error of the user's own."""


class TooMuch(Refused):
    """A subclass of another error."""


@dataclass
class Order:
    name: str
    total: int


@task
async def corpus_double(x: int) -> int:
    return x * 2


@task
def corpus_add(a: int, b: int) -> int:
    return a + b


@task
async def corpus_total(numbers: list[int]) -> int:
    return sum(numbers)


@task
async def corpus_divide(a: int, b: int) -> int:
    if b == 7:
        raise ValueError(f"{a} by seven")
    return a // b


@task
async def corpus_pair(x: int) -> tuple[int, int]:
    return x, x + 1


@task
async def corpus_check(n: int, limit: int, strict: bool = False) -> bool:
    if strict and n < limit:
        raise Refused(f"{n} of {limit}")
    return n >= limit


@task
async def corpus_fail(kind: str) -> str:
    kinds = {
        "ValueError": ValueError,
        "KeyError": KeyError,
        "OSError": OSError,
        "Refused": Refused,
        "TooMuch": TooMuch,
    }
    if kind in kinds:
        raise kinds[kind](f"a {kind}")
    return "fine"


@task
async def corpus_order(n: int) -> Order:
    return Order(f"order {n}", n * 2)


@task
async def corpus_spread_out(n: int) -> list[int]:
    return list(range(n))


@workflow
async def corpus_workflow(n: int) -> int:
    if n > 3:
        raise Refused(f"{n} is refused")
    return await corpus_double(n) + 1


TASKS: list[Any] = [
    corpus_double,
    corpus_add,
    corpus_total,
    corpus_divide,
    corpus_pair,
    corpus_check,
    corpus_fail,
    corpus_order,
    corpus_spread_out,
]
