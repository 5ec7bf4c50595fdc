"""No expression takes long or makes a large value."""

import time
from typing import Any

import pytest

from perdure.core.expressions import EvaluationError, ExpressionTooCostly, parse
from perdure.core.expressions.budget import Evaluation
from perdure.core.limits import MAX_EXPRESSION_WORK

COSTLY = [
    "9 ** 9 ** 9",
    "2 ** 100000",
    "2 ** 4097",
    "2 ** 4095 * 4",
    "2 ** 4095 + 2 ** 4095 + 2 ** 4095",
    "(-2) ** 99999",
    "10 ** 1300 // 1",
    "'a' * 10 ** 9",
    "10 ** 9 * 'a'",
    "[0] * 10 ** 9",
    "(0,) * 10 ** 100",
    "'a' * 900000 + 'a' * 900000",
    "[0] * 90000 + [0] * 90000",
    "'x'.join(str(i) for i in range(10 ** 6))",
    "('x' * 1000).join(['a'] * 90000)",
    "('a' * 1000000).replace('a', 'b' * 1000000)",
    "'aaaa'.replace('', 'b' * 900000)",
    "f'{1:>1000000000}'",
    "f'{1:0{width}}'",
    "f'{1.5:.{width}f}'",
    "f'{long}{long}'",
    "range(10 ** 12)",
    "range(-(10 ** 100), 10 ** 100)",
    "sum(sum(range(100000)) for i in range(100000))",
    "sum(sum(sum(range(1000)) for i in range(1000)) for j in range(1000))",
    "str(10 ** 5000)",
    "int('9' * 10 ** 6)",
    "int('9' * 4000)",
    "float('9' * 10 ** 6)",
    "int(long)",
    "round(1, -(10 ** 10))",
    "round(1.5, 10 ** 10)",
    "'a'.zfill(10 ** 9)",
    "[[[0] * 1000] * 1000] * 1000",
    "[{'a': numbers} for i in range(1000)]",
    "[10 ** 1200] * 90000",
    "{'a': [long, long, long]}",
    "str([[[0] * 1000] * 1000] * 1000)",
    "f'{[[[0] * 1000] * 1000] * 1000!r:5}'",
    "[[[0] * 1000] * 1000] * 1000 == [[[0] * 1000] * 1000] * 1000",
    "[[[0] * 1000] * 1000] * 1000 < [[[0] * 1000] * 1000] * 1000",
    "[0] * 90000 in [[0] * 90000] * 90000",
    "[[1] < numbers for i in numbers for j in numbers]",
    "[numbers.count(i) for i in numbers]",
    "[numbers.index(59999) for i in numbers]",
    "[i in numbers for i in numbers]",
    "[('a' * 500000) in ['a' * 500000 + 'b'] * 10000 for i in range(10000)]",
    "max([[0] * 50000] * 50000)",
    "max(range(50000), key=lambda i: [0] * 50000)",
    "sorted([[0] * 1000] * 10000)",
    "sorted(range(50000), key=lambda i: numbers)",
    "{i * (2 ** 61 - 1): 0 for i in range(100000)}",
    "dict((i * (2 ** 61 - 1), 0) for i in range(100000))",
    "{tuple(numbers): i for i in numbers}",
    "[{}.get(tuple(numbers)) for i in numbers]",
    "[a for a in numbers for b in numbers for c in numbers]",
    "any(False for a in numbers for b in numbers)",
    "all(a for a in range(1, 99999) for b in numbers)",
    "[x for x in [0] * 100000 for y in [0, 1]]",
    "('a,' * 500000).split(',')",
    "('a ' * 500000).split()",
    "('a\\n' * 500000).splitlines()",
    "('a' * 500000).strip('b' * 500000 + 'a')",
    "list(long)",
    "reversed(long)",
    "sorted(long)",
    "[*numbers, *numbers]",
    "enumerate(long)",
    "zip(long, long)",
    "sum([numbers] * 1000, [])",
    "[2 ** 4095 * 3 // 2 ** 4000 for i in range(90000)]",
    "[str(2 ** 4095) for i in range(90000)]",
    "[{**names} for i in range(1000)]",
    "[long.find('b') for i in range(1000)]",
    "[long.upper() for i in range(1000)]",
    "['b' in long for i in range(1000)]",
    "['a'.startswith(prefixes) for i in range(90000)]",
    "[long[1:] for i in range(1000)]",
    "[long == other for i in range(100000)]",
]

SCOPE: dict[str, Any] = {
    "width": 10**9,
    "numbers": list(range(60_000)),
    "long": "a" * 900_000,
    "other": "a" * 899_999 + "b",
    "prefixes": ("b",) * 60_000,
    "names": {str(i): i for i in range(60_000)},
}


@pytest.mark.parametrize("text", COSTLY)
def test_an_evaluation_that_would_take_too_long_is_refused(text: str) -> None:
    expression = parse(text)
    before = time.perf_counter()
    with pytest.raises(ExpressionTooCostly) as raised:
        expression.evaluate(SCOPE)
    assert time.perf_counter() - before < 5
    assert raised.value.remedy == "compute it in a task"


def test_a_value_that_holds_another_many_times_is_bounded() -> None:
    """Each list holds the one before it ten times: nothing in memory, and without end as text."""
    text = "[0]"
    for _ in range(12):
        text = f"({text}) * 10 + [1]" if text == "[0]" else f"[{text}] * 10"
    with pytest.raises(ExpressionTooCostly):
        parse(text).evaluate({})
    with pytest.raises(ExpressionTooCostly):
        parse(f"str({text})").evaluate({})


def test_measuring_a_value_that_contains_itself_ends() -> None:
    knot: list[Any] = []
    knot.append(knot)
    for text in ("[knot]", "repr(knot)", "[knot] == [[knot]]"):
        with pytest.raises((ExpressionTooCostly, RecursionError)):
            parse(text).evaluate({"knot": knot})


WITHIN: dict[str, Any] = {
    "len([n * 2 + 1 for n in numbers])": 60_000,
    "sum(n.bit for n in [{'bit': 1}] * 60000)": 60_000,
    "sorted(numbers, reverse=True)[0]": 59_999,
    "max(numbers, key=lambda n: -n)": 0,
    "numbers == [*numbers]": True,
    "len(','.join(str(n) for n in numbers))": 348_889,
    "len({str(n): n for n in numbers})": 60_000,
    "59999 in numbers": True,
    "2 ** 4095": 2**4095,
    "1 ** 10 ** 1000": 1,
    "0 * 10 ** 1000": 0,
    "'a' * -(10 ** 9)": "",
    "len(long + 'a')": 900_001,
    "{'a': names, 'b': numbers}": {"a": SCOPE["names"], "b": SCOPE["numbers"]},
    "range(10 ** 12, 10 ** 12 + 2)": [10**12, 10**12 + 1],
    "f'{1:>1000}'": " " * 999 + "1",
}


@pytest.mark.parametrize("text", WITHIN)
def test_an_expression_within_the_bounds_is_evaluated(text: str) -> None:
    assert parse(text).evaluate(SCOPE) == WITHIN[text]


def test_the_same_evaluation_costs_the_same_each_time() -> None:
    expression = parse("sum(a * b for a in xs for b in xs)")
    left = []
    for _ in range(2):
        work = Evaluation({"xs": [1, 2, 3]}, 2)
        assert expression._code(work) == 36
        left.append(work.left)
    assert left[0] == left[1]
    assert 9 * 4 <= MAX_EXPRESSION_WORK - left[0] <= 100


@pytest.mark.parametrize(
    "text",
    ["t % 3", "f'{n:n}'", "(-8) ** 0.5", "s + s", "[x for x in s]", "str(s)", "f'{[s]}'", "s[0]"],
)
def test_operations_that_expressions_do_not_support_are_refused(text: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        parse(text).evaluate({"t": "%d", "n": 3, "s": {1}})
    assert raised.value.code == "evaluation"
