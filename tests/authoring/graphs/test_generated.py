"""Randomly generated functions, compiled and compared with the plain function."""

import linecache
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import gather
from perdure.authoring.graphs.decorator import graph
from perdure.core.graph.checking import problems_of
from tests.authoring.graphs.corpus import Case, Outcome, expected
from tests.authoring.graphs.corpus_tasks import TASKS, Refused, TooMuch
from tests.authoring.graphs.interpreter import Failed, World, interpret

VALUES = ("a", "b", "c", "1", "2", "a + 1", "b - c", "a * 2", "c % 3", "10 // b")
TESTS = ("a > b", "c == 0", "a % 2", "b < 3 and c < 9", "not a", "await corpus_check(b, limit=2)")
CALLS = (
    "corpus_double({0})",
    "corpus_add({0}, b={1})",
    "corpus_divide({0}, {1})",
    "corpus_fail('TooMuch')",
)
ERRORS = ("ZeroDivisionError", "ValueError", "(ArithmeticError, KeyError)", "Refused", "Exception")

ERROR_TYPES = {"Refused": Refused, "TooMuch": TooMuch}

Draw = Callable[[st.SearchStrategy[Any]], Any]


class Writer:
    """Writes one function. Each statement that is passed leaves its number in `log`; loops have an end."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._numbers = count(1)

    def _one_of(self, choices: tuple[str, ...]) -> str:
        return str(self._draw(st.sampled_from(choices)))

    def _call(self) -> str:
        return self._one_of(CALLS).format(self._one_of(VALUES), self._one_of(VALUES))

    def block(self, depth: int, *, in_loop: bool, in_handler: bool = False) -> list[str]:
        lines: list[str] = []
        for _ in range(self._draw(st.integers(1, 3))):
            lines += self._statement(depth, in_loop, in_handler)
        return lines

    def _statement(self, depth: int, in_loop: bool, in_handler: bool) -> Iterator[str]:
        number = next(self._numbers)
        yield f"log = [*log, {number}]"
        kinds = ["assign", "await", "swap", "lift", "gather", "spread", "raise", "return"]
        kinds += ["break", "continue"] * in_loop + ["again"] * in_handler
        kinds += ["if", "while", "for", "try"] * (3 if depth else 0)
        yield from getattr(self, f"_{self._one_of(tuple(kinds))}")(
            depth, in_loop, in_handler, number
        )

    def _simple(self, line: str) -> Iterator[str]:
        yield line

    def _assign(self, *_: Any) -> Iterator[str]:
        sign = self._one_of(("=", "+=", "-="))
        return self._simple(f"{self._one_of(('a', 'b', 'c'))} {sign} {self._one_of(VALUES)}")

    def _await(self, *_: Any) -> Iterator[str]:
        return self._simple(f"{self._one_of(('a', 'b', 'c'))} = await {self._call()}")

    def _swap(self, *_: Any) -> Iterator[str]:
        return self._simple("a, (b, c) = c, [a, b]")

    def _lift(self, *_: Any) -> Iterator[str]:
        return self._simple(f"a = {self._one_of(VALUES)} + await {self._call()} * 2")

    def _gather(self, *_: Any) -> Iterator[str]:
        return self._simple(f"a, b = await gather({self._call()}, {self._call()})")

    def _spread(self, *_: Any) -> Iterator[str]:
        return self._simple(
            "c = sum(await gather(*[corpus_divide(x, a) for x in range(min(b, 3)) if x != c]))"
        )

    def _raise(self, *_: Any) -> Iterator[str]:
        yield f"if {self._one_of(TESTS)}:"
        yield f"    raise {self._one_of(('ValueError', 'Refused', 'TooMuch'))}(f'{{a}}')"

    def _return(self, *_: Any) -> Iterator[str]:
        yield f"if {self._one_of(TESTS)}:"
        yield "    return [a, b, c, log]"

    def _break(self, *_: Any) -> Iterator[str]:
        return self._simple("break")

    def _continue(self, *_: Any) -> Iterator[str]:
        yield f"if {self._one_of(TESTS)}:"
        yield "    continue"

    def _again(self, *_: Any) -> Iterator[str]:
        return self._simple("raise")

    def _if(self, depth: int, in_loop: bool, in_handler: bool, _number: int) -> Iterator[str]:
        yield f"if {self._one_of(TESTS)}:"
        yield from self._inner(depth, in_loop, in_handler)
        if self._draw(st.booleans()):
            yield "else:"
            yield from self._inner(depth, in_loop, in_handler)

    def _while(self, depth: int, _in_loop: bool, in_handler: bool, number: int) -> Iterator[str]:
        yield f"w{number} = 0"
        yield f"while w{number} < 3 and a < 20:"
        yield f"    w{number} += 1"
        yield from self._inner(depth, True, in_handler)

    def _for(self, depth: int, _in_loop: bool, in_handler: bool, number: int) -> Iterator[str]:
        yield f"for i{number}, b in enumerate([c, a, 1]):"
        yield f"    c += i{number}"
        yield from self._inner(depth, True, in_handler)

    def _try(self, depth: int, in_loop: bool, in_handler: bool, number: int) -> Iterator[str]:
        yield "try:"
        yield from self._inner(depth, in_loop, in_handler)
        yield f"except {self._one_of(ERRORS)} as e{number}:"
        yield f"    log = [*log, str(e{number})]"
        yield from self._inner(depth, in_loop, True)
        if self._draw(st.booleans()):
            yield "else:"
            yield from self._inner(depth, in_loop, in_handler)

    def _inner(self, depth: int, in_loop: bool, in_handler: bool) -> Iterator[str]:
        for line in self.block(depth - 1, in_loop=in_loop, in_handler=in_handler):
            yield f"    {line}"


@st.composite
def sources(draw: Draw) -> str:
    body = ["log = []", *Writer(draw).block(3, in_loop=False), "return [a, b, c, log]"]
    return "\n".join(["async def generated(a, b, c):", *(f"    {line}" for line in body), ""])


def compiled(source: str) -> Any:
    file = "<generated>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    tasks: dict[str, Any] = {task.name: task for task in TASKS}
    names = tasks | {"gather": gather} | ERROR_TYPES
    exec(compile(source, file, "exec"), names)
    return graph(names["generated"])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(sources(), st.integers(-1, 4), st.integers(-1, 4), st.integers(-1, 4))
def test_a_generated_function_and_its_graph_give_the_same_result(
    source: str, a: int, b: int, c: int
) -> None:
    program = compiled(source)
    assert problems_of(program.model) == []
    case = Case(program, {"a": a, "b": b, "c": c})
    try:
        outcome = Outcome(interpret(program.model, case.kwargs, World(TASKS, ())))
    except Failed as failed:
        outcome = Outcome(None, failed.trouble.type_name, failed.trouble.message)
    assert outcome == expected(case)
