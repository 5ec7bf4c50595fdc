# ruff: noqa: A001, A002, B007, B905, FURB136, PLW0108, RET504, RET505, RUF005 - the programs are the data
# mypy: disable-error-code="possibly-undefined, unused-awaitable"
"""Programs that cover the features of the compiler, each with inputs: data for every way of running them.

`CASES` has a program, its arguments and the signals that it gets; `expected` runs the plain function.
"""

import asyncio
from asyncio import sleep as pause
from datetime import timedelta
from typing import Any, NamedTuple

import perdure
from perdure import Signal, gather, sleep
from perdure.authoring.graphs.decorator import graph
from perdure.core.codec import JsonCodec
from tests.authoring.graphs import corpus_tasks as steps
from tests.authoring.graphs.corpus_tasks import (
    Refused,
    TooMuch,
    corpus_add,
    corpus_check,
    corpus_divide,
    corpus_double,
    corpus_fail,
    corpus_order,
    corpus_pair,
    corpus_spread_out,
    corpus_total,
    corpus_workflow,
)
from tests.authoring.graphs.inline import run_inline

CODEC = JsonCodec()

approval = Signal("corpus-approval", bool)
amounts = Signal("corpus-amounts", int)

LIMIT = 3
PRICES = {"apple": 2, "pear": 3}
PAUSE = timedelta(milliseconds=2)
EXPECTED_ERRORS = (ValueError, KeyError)


class Outcome(NamedTuple):
    """The result; or the type and the message of the error."""

    result: Any = None
    error: str | None = None
    message: str | None = None


class Case(NamedTuple):
    """A run of a program. Signals are sent before it asks for them; others never arrive."""

    program: Any
    kwargs: dict[str, Any]
    signals: tuple[tuple[str, Any], ...] = ()

    @property
    def id(self) -> str:
        inside = ",".join(f"{name}={value!r}" for name, value in self.kwargs.items())
        return f"{self.program.name}({inside}){len(self.signals) or ''}"


def expected(case: Case) -> Outcome:
    """What the plain function does; values as a store returns them."""
    try:
        return Outcome(CODEC.decode(CODEC.encode(run_inline(*case)), object))
    except Exception as error:  # any error of the program
        kind = type(error)
        return Outcome(None, f"{kind.__module__}:{kind.__qualname__}", str(error))


@graph
async def corpus_straight(a: int, b: int = 2) -> Any:
    """Assignments, arithmetic and texts."""
    total = a + b
    total *= 2
    half: float = total / 2
    name = "odd" if total % 2 else "even"
    both = [total, half]
    return {"total": total, "half": half, "name": f"{name}: {total:>4}", "both": both, "n": -total}


@graph
async def corpus_steps(x: int) -> Any:
    doubled = await corpus_double(x)
    added = await corpus_add(doubled, b=x)
    await corpus_double(added)
    return await steps.corpus_add(a=added, b=1)


@graph
async def corpus_nothing(x: int) -> Any:
    if x > 1:
        pass
    x + 1  # evaluated, and dropped


@graph
async def corpus_elif(n: int) -> Any:
    if n < 0:
        size: Any = "negative"
    elif n == 0:
        size = "zero"
    elif n < LIMIT:
        size = await corpus_total([n])
    else:
        size = "large"
    if n != 1:
        pass
    else:
        size = f"one {size}"
    return size


@graph
async def corpus_gather_before_loop(n: int) -> Any:
    one, two = await gather(corpus_double(1), corpus_double(2))
    if n:
        while n < 9:
            n = await corpus_add(n, one)
    return n + two


@graph
async def corpus_iterators(xs: list[int], d: dict[str, int]) -> Any:
    total = 0
    for number, (a, b) in enumerate(zip(xs, reversed(xs), strict=True)):
        total += number * a * b
    first, *others = reversed(xs)
    kept = range(len(xs))
    again = [k for _ in range(2) for k in kept]
    keys = sorted(d.keys())
    names = ",".join(reversed(keys))
    found = 2 in d.values() and (0, first) in enumerate(xs[::-1])
    for x in reversed(xs) if found else xs:
        total += x
    return [
        *zip(xs, others, strict=False),
        [total, again, names, found, dict(zip(sorted(d), xs, strict=False)), kept[-1]],
        max(zip(xs, others, strict=False)),
        await gather(*[corpus_add(a, b) for a, b in zip(xs, others, strict=False)]),
    ]


@graph
async def corpus_while(n: int) -> Any:
    turns = 0
    while n > 0:
        n = await corpus_add(n, -1)
        if n == 5:
            continue
        turns += 1
        if turns == 4:
            break
    return [n, turns]


@graph
async def corpus_while_await(n: int) -> Any:
    seen: list[Any] = []
    while not await corpus_check(n, limit=LIMIT):
        seen = [*seen, n]
        n += 1
    return seen


@graph
async def corpus_forever(n: int) -> Any:
    while True:
        n = await corpus_double(n)
        if n > 100:
            return n
        elif n == 0:
            break
    return "stuck"


@graph
async def corpus_for(xs: list[Any]) -> Any:
    total = 0
    for x in xs:
        if x is None:
            break
        if x < 0:
            continue
        total = await corpus_add(total, x)
    return total


@graph
async def corpus_loop_variable(xs: list[Any]) -> Any:
    last = "none"
    for last in xs:
        pass
    for i in range(3):
        square = i * i
    return [last, i, square]


@graph
async def corpus_for_else_found(xs: list[Any], wanted: int) -> Any:
    found = None
    for i, x in enumerate(xs, start=1):
        if x == wanted:
            found = i
            break
    if found is None:
        return "missing"
    return found


@graph
async def corpus_nested_loops(rows: list[Any]) -> Any:
    seen = 0
    for row in rows:
        for x in row:
            if x == 0:
                break
            if x < 0:
                continue
            seen = await corpus_add(seen, x)
        else_ = len(row)
        if seen > 20:
            break
        seen += else_
    return seen


@graph
async def corpus_inner_break(a: int, b: int, c: int) -> Any:
    while a < 2:
        a += 1
        while b < 3:
            if c:
                break
            b += 1
        c -= 1
    return [a, b, c]


@graph
async def corpus_loops_in_branches(kind: str, n: int) -> Any:
    result: list[Any] = []
    if kind == "up":
        i = 0
        while i < n:
            i += 1
            result = [*result, await corpus_double(i)]
    elif kind == "down":
        for i in range(n, 0, -1):
            result = result + [i]
    else:
        result = ["neither"]
    return {"kind": kind, "result": result}


@graph
async def corpus_loop_then_loop(n: int) -> Any:
    total = 0
    i = 0
    while i < n:
        i += 1
        j = 0
        while True:
            j = await corpus_add(j, 1)
            if j >= i:
                break
        total += j
        if total > 9:
            return {"early": total}
    for k in range(i):
        total -= k
    return total


@graph
async def corpus_unpack(pair: list[Any]) -> Any:
    a, b = pair
    (c, d), e = [a, b], a
    a, b = b, a
    first, *rest = [a, b, c, d, e]
    *most, end = rest
    x = y = await corpus_pair(a)
    p, (q, r) = x[0], y
    return [a, b, c, d, e, first, rest, most, end, p, q, r]


@graph
async def corpus_unpack_in_for(pairs: list[Any], table: dict[str, Any]) -> Any:
    out: list[Any] = []
    for a, (b, c) in pairs:
        out = [*out, a + b * c]
    for i, (name, price) in enumerate(zip(["x", "y"], [1, 2])):
        out = [*out, f"{i}{name}{price}"]
    for key, value in table.items():
        out = [*out, f"{key}={value}"]
    return out


@graph
async def corpus_try(x: int, y: int) -> Any:
    try:
        z = await corpus_divide(x, y)
    except ZeroDivisionError as e:
        return f"no: {e}"
    else:
        z = z + 1
    return z


@graph
async def corpus_try_several(kind: str) -> Any:
    log = ["begin"]
    try:
        log = [*log, "try"]
        value = await corpus_fail(kind)
        log = [*log, value]
    except EXPECTED_ERRORS as e:
        log = [*log, "expected " + str(e), f"{e!s:>20}", *[str(e) for e in (1, 2)]]
    except (Refused, TypeError):
        log = [*log, "refused"]
    except Exception as error:
        log = [*log, f"other {error!s}"]
        raise
    log = [*log, "end"]
    return log


@graph
async def corpus_try_inline(xs: list[Any], key: str) -> Any:
    try:
        price = PRICES[key]
        share = sum(xs) / len(xs)
        first = xs[2]
    except LookupError:
        return "no such thing"
    except ArithmeticError:
        price, share, first = 0, 0, None
    return [price, share, first]


@graph
async def corpus_try_in_loop(xs: list[Any]) -> Any:
    done: list[Any] = []
    failed = 0
    for x in xs:
        try:
            if x < 0:
                continue
            if x > 50:
                break
            y = await corpus_divide(100, x)
        except ZeroDivisionError:
            failed += 1
        else:
            done = [*done, y]
    return {"done": done, "failed": failed}


@graph
async def corpus_loop_in_try(xs: list[Any]) -> Any:
    y = 0
    try:
        y = await corpus_double(y)
        for x in xs:
            y += await corpus_divide(60, x)
        else_ = "whole"
    except ZeroDivisionError as e:
        else_ = str(e)
    return [y, else_]


@graph
async def corpus_retry(limit: int, needed: int) -> Any:
    attempts = 0
    while True:
        attempts += 1
        try:
            return {"value": await corpus_check(attempts, limit=needed, strict=True), "n": attempts}
        except Refused:
            if attempts >= limit:
                raise
        await sleep(0.001)


@graph
async def corpus_nested_try(kind: str) -> Any:
    try:
        try:
            await corpus_fail(kind)
        except KeyError:
            return "inner"
        except ValueError as e:
            raise Refused(f"again: {e}") from e
    except Refused as e:
        text = str(e)
        try:
            await corpus_fail("ValueError")
        except ValueError as other:
            return f"{text} and {other}"
    return "fine"


@graph
async def corpus_raise(n: int) -> Any:
    if n == 1:
        raise ValueError(f"one: {n}")
    if n == 2:
        raise TooMuch
    if n == 3:
        raise Refused()
    if n == 4:
        raise RuntimeError(n)
    try:
        if n == 5:
            raise TooMuch("caught by its base")
    except Refused as e:
        return str(e)
    assert n != 6
    assert n != 7, f"seven is {n}"
    return n


@graph
async def corpus_gather(a: int, b: int) -> Any:
    x, y = await gather(corpus_double(a), corpus_add(a, b + 1))
    both = await perdure.gather(corpus_double(x), corpus_double(y))
    await gather(corpus_double(1))
    return [x, y, both, await gather()]


@graph
async def corpus_gather_fails(a: int, b: int) -> Any:
    try:
        found = await gather(corpus_divide(12, a), corpus_divide(30, b), corpus_double(a))
    except ZeroDivisionError as e:
        return f"failed: {e}"
    except ValueError as e:
        return f"odd: {e}"
    return sum(found)


@graph
async def corpus_spread(xs: list[Any], n: int) -> Any:
    doubled = await gather(*[corpus_double(x) for x in xs])
    large = await gather(*(corpus_add(x, b=n * 2) for x in doubled if x > n))
    pairs = await gather(*[corpus_add(a, b) for a in xs for b in range(n) if a != b])
    named = await gather(*[corpus_add(b=v, a=i) for i, v in enumerate(large)])
    return {"doubled": doubled, "large": large, "pairs": pairs, "named": named}


@graph
async def corpus_spread_fails(xs: list[Any]) -> Any:
    try:
        return await gather(*[corpus_divide(60, x) for x in xs])
    except (ZeroDivisionError, ValueError) as e:
        return f"first: {e}"


@graph
async def corpus_quotients(xs: list[Any]) -> Any:
    return await gather(*[corpus_divide(60, x) for x in xs])


@graph
async def corpus_quotients_called(xs: list[Any]) -> Any:
    found = await corpus_quotients(xs)
    return [len(found), *found]


@graph
async def corpus_quotients_tried(xs: list[Any]) -> Any:
    try:
        found = await corpus_quotients(xs)
    except ZeroDivisionError:
        return "divided by zero"
    return found


@graph
async def corpus_quotients_tried_in_loop(xs: list[Any]) -> Any:
    found: list[Any] = []
    for x in xs:
        try:
            found = [*found, await corpus_quotients([x, x + 1])]
        except (ZeroDivisionError, ValueError) as e:
            found = [*found, str(e)]
    return found


@graph
async def corpus_spread_in_loop(n: int) -> Any:
    rows: list[Any] = []
    for i in range(n):
        row = await gather(*[corpus_add(i, j) for j in await corpus_spread_out(i)])
        if not row:
            continue
        rows = [*rows, await corpus_total(list(row))]
    return rows


@graph
async def corpus_lifted(x: int) -> Any:
    y = 1 + await corpus_double(x) * 2
    z = await corpus_add(await corpus_double(y), await corpus_double(x) + y)
    if await corpus_check(z, limit=LIMIT) and z != 7:
        z = [await corpus_double(z), z][0]
    text = f"{await corpus_double(1)} {x:>3} {await corpus_double(2)!s}"
    table = {"a": await corpus_double(3), "b": x, **{"c": await corpus_double(4)}}
    low = min(await corpus_double(x), x) + sum(n for n in await corpus_pair(x) if n)
    return {"z": z, "text": text, "table": table, "low": low, "m": (await corpus_pair(x))[1]}


@graph
async def corpus_order_of_evaluation(x: int) -> Any:
    try:
        return f"{10 // x} {await corpus_fail('ValueError')}"
    except ZeroDivisionError:
        return "division first"
    except ValueError:
        return "task first"


@graph
async def corpus_sleeps(n: int) -> Any:
    await sleep(0.001)
    await perdure.sleep(timedelta(milliseconds=1, seconds=0))
    await perdure.sleep(PAUSE)
    await sleep(duration=n / 1000)
    await sleep(timedelta(milliseconds=n))
    return n


@graph
async def corpus_signal(who: str) -> Any:
    ok = await approval.receive()
    if not ok:
        return f"{who} refused"
    total = 0
    while total < 10:
        total += await amounts.receive()
    return f"{who} paid {total}"


@graph
async def corpus_signal_in_time(seconds: float) -> Any:
    try:
        ok = await approval.receive(timeout=seconds)
    except TimeoutError as e:
        return f"late: {e}"
    try:
        more: Any = await amounts.receive(timeout=timedelta(milliseconds=1500))
    except TimeoutError as e:
        more = str(e)
    return [ok, more]


@graph
async def corpus_signal_never(x: int) -> Any:
    await approval.receive(0.001)
    return x


@graph(name="corpus_inner_graph", version="1")
async def corpus_inner(n: int, step: int = 2) -> Any:
    total = 0
    for i in range(n):
        if i == 9:
            raise TooMuch(f"{n} is too much")
        total = await corpus_add(total, step)
    return total


@graph
async def corpus_outer(n: int) -> Any:
    a = await corpus_inner(n)
    try:
        b: Any = await corpus_inner(n * 5, step=1)
    except TooMuch as e:
        b = str(e)
    c = await gather(*[corpus_inner(i) for i in range(n)])
    d, f = await gather(corpus_inner(1, 7), corpus_double(n))
    return {"a": a, "b": b, "c": c, "d": d, "f": f}


@graph
async def corpus_child(n: int) -> Any:
    one = await corpus_workflow(n)
    try:
        more: Any = await gather(*[corpus_workflow(x) for x in range(n)])
    except Refused as e:
        more = str(e)
    return [one, more]


@graph
async def corpus_awkward_names(_x: int, input: int, sum: int = 3, job: Any = None) -> Any:
    result = _x + input
    code = result * 2
    error = code - sum
    list = [error, job]
    _hidden = {"input": input}
    for _ in range(2):
        code += _
    return [result, code, error, list, _hidden, [_ + input for _ in list if _], job]


@graph
async def corpus_reserved_parameters(code: int, error: str = "none", job: Any = None) -> Any:
    result = code + 1
    code = await corpus_double(result)
    return [result, code, error, job]


@graph
async def corpus_records(order: dict[str, Any], n: int) -> Any:
    made = await corpus_order(n)
    total = 10 if made.total > 10 else made.total
    return [made.name, total, order["name"], await corpus_total([made.total, n]), made]


@graph
async def corpus_expressions(words: list[Any], table: dict[str, Any]) -> Any:
    upper = [w.upper() for w in words if w]
    counts = {w: words.count(w) for w in words}
    best = max(words, key=lambda w: len(w), default=None)
    known = all(w in table for w in words) and any(table.values())
    joined = ", ".join(sorted(words, reverse=True))
    cut = words[1:] or words[:1]
    return [upper, counts, best, known, joined, cut, table.get("a", LIMIT), not words, PRICES]


@graph
async def corpus_early_returns(xs: list[Any]) -> Any:
    for x in xs:
        for y in xs:
            if x + y == 10:
                return [x, y]
            if y > 100:
                return await corpus_double(y)
    return None


@graph
async def corpus_shadows(x: int) -> Any:
    doubled = [x * 2 for x in range(x)]
    found = await gather(*[corpus_double(x) for x in doubled])
    return [x, doubled, found]


@graph
async def corpus_asyncio(xs: list[int]) -> Any:
    """asyncio's names mean Perdure's."""
    await asyncio.sleep(0.001)
    first, second = await asyncio.gather(corpus_double(1), corpus_add(2, 3))
    many = await asyncio.gather(*[corpus_double(x) for x in xs])
    await pause(delay=0)
    try:
        await asyncio.gather(corpus_divide(1, 0), corpus_fail("late"))
    except ZeroDivisionError as error:
        return [first, second, *many, str(error)]
    return None


@graph
async def corpus_changes(xs: list[int]) -> Any:
    """Changes of lists and dicts that no other reference sees."""
    found: list[int] = []
    by_size: dict[str, int] = {"n": 0}
    for x in xs:
        if x < 0:
            found = []
            continue
        found.append(await corpus_double(x))
        by_size["n"] = by_size["n"] + 1
        by_size[f"{x}"] = await corpus_add(x, len(found))
        if len(found) > 2:
            break
    pairs = [[1, 2] for _ in xs]
    pairs.append([3, await corpus_total(found)])
    turn = 0
    while turn < 2:
        turn += 1
        pairs.append([turn, sum(found)])
    try:
        by_size[f"{await corpus_double(1)} more"] = await corpus_divide(1, len(xs))
    except ZeroDivisionError:
        by_size["failed"] = len(by_size)
    return [found, by_size, pairs, sorted(by_size.values())]


def _cases() -> list[Case]:
    table: list[tuple[Any, list[dict[str, Any]]]] = [
        (corpus_straight, [{"a": 1}, {"a": 5, "b": 6}, {"a": -3, "b": 0}]),
        (corpus_steps, [{"x": 0}, {"x": 7}]),
        (corpus_nothing, [{"x": 1}, {"x": 2}]),
        (corpus_elif, [{"n": n} for n in (-1, 0, 1, 2, 3, 4)]),
        (corpus_gather_before_loop, [{"n": n} for n in (0, 1, 20)]),
        (
            corpus_iterators,
            [{"xs": xs, "d": {"b": 2, "a": 1}} for xs in ([1, 2, 3], [4, 5], [])],
        ),
        (corpus_while, [{"n": n} for n in (0, 1, 4, 6, 9)]),
        (corpus_while_await, [{"n": n} for n in (0, 3, 5)]),
        (corpus_forever, [{"n": n} for n in (0, 1, 60)]),
        (corpus_for, [{"xs": xs} for xs in ([], [1, 2], [1, -2, 3, None, 4])]),
        (corpus_loop_variable, [{"xs": []}, {"xs": [4, 5]}]),
        (corpus_for_else_found, [{"xs": [3, 4], "wanted": n} for n in (3, 4, 5)]),
        (
            corpus_nested_loops,
            [{"rows": r} for r in ([], [[1, 2], [3, 0, 9], [-1, 5]], [[30], [1]])],
        ),
        (
            corpus_inner_break,
            [{"a": a, "b": b, "c": c} for a, b, c in ((0, 0, 1), (0, 0, 0), (1, 5, 0), (2, 0, 0))],
        ),
        (
            corpus_loops_in_branches,
            [{"kind": k, "n": n} for k in ("up", "down", "x") for n in (0, 3)],
        ),
        (corpus_loop_then_loop, [{"n": n} for n in (0, 1, 3, 4)]),
        (corpus_unpack, [{"pair": p} for p in ([1, 2], [1], [1, 2, 3])]),
        (
            corpus_unpack_in_for,
            [
                {"pairs": [[1, [2, 3]]], "table": {"k": 1}},
                {"pairs": [], "table": {}},
                {"pairs": [[1, [2]]], "table": {}},
            ],
        ),
        (corpus_try, [{"x": 6, "y": y} for y in (0, 2)]),
        (
            corpus_try_several,
            [{"kind": k} for k in ("", "ValueError", "KeyError", "Refused", "TooMuch", "OSError")],
        ),
        (
            corpus_try_inline,
            [
                {"xs": xs, "key": key}
                for xs, key in (([], "pear"), ([1, 2, 3], "apple"), ([1], "apple"), ([1], "fig"))
            ],
        ),
        (corpus_try_in_loop, [{"xs": xs} for xs in ([], [1, 0, -1, 5, 0], [2, 99, 4])]),
        (corpus_loop_in_try, [{"xs": xs} for xs in ([], [1, 2], [1, 0, 2])]),
        (corpus_retry, [{"limit": a, "needed": b} for a, b in ((3, 1), (3, 3), (2, 5))]),
        (
            corpus_nested_try,
            [{"kind": k} for k in ("", "KeyError", "ValueError", "Refused", "OSError")],
        ),
        (corpus_raise, [{"n": n} for n in range(9)]),
        (corpus_gather, [{"a": 1, "b": 2}]),
        (
            corpus_gather_fails,
            [{"a": a, "b": b} for a, b in ((1, 2), (0, 2), (2, 0), (7, 0), (0, 7), (0, 0))],
        ),
        (corpus_spread, [{"xs": xs, "n": n} for xs, n in (([], 1), ([1, 2, 3], 2), ([5], 0))]),
        (corpus_spread_fails, [{"xs": xs} for xs in ([], [1, 2], [1, 0, 7], [7, 0])]),
        (corpus_quotients, [{"xs": xs} for xs in ([], [1, 2], [1, 0])]),
        (corpus_quotients_called, [{"xs": xs} for xs in ([], [1, 2], [1, 7])]),
        (corpus_quotients_tried, [{"xs": xs} for xs in ([], [1, 2], [1, 0, 7], [1, 7, 0])]),
        (corpus_quotients_tried_in_loop, [{"xs": xs} for xs in ([], [1, 0, 2, 6, 7])]),
        (corpus_spread_in_loop, [{"n": n} for n in (0, 1, 3)]),
        (corpus_lifted, [{"x": x} for x in (0, 1, 4)]),
        (corpus_order_of_evaluation, [{"x": x} for x in (0, 1)]),
        (corpus_sleeps, [{"n": 1}]),
        (corpus_inner, [{"n": 0}, {"n": 3, "step": 5}, {"n": 12}]),
        (corpus_outer, [{"n": n} for n in (1, 3)]),
        (corpus_child, [{"n": n} for n in (0, 2, 5)]),
        (
            corpus_awkward_names,
            [{"_x": 1, "input": 2}, {"_x": 1, "input": 2, "sum": 0, "job": 5}],
        ),
        (corpus_reserved_parameters, [{"code": 1}, {"code": 2, "error": "e", "job": {"a": 1}}]),
        (corpus_records, [{"order": {"name": "x"}, "n": n} for n in (1, 40)]),
        (
            corpus_expressions,
            [{"words": w, "table": t} for w, t in (([], {}), (["b", "a", "b"], {"a": 0, "b": 1}))],
        ),
        (corpus_early_returns, [{"xs": xs} for xs in ([], [1, 9], [1, 2], [1, 300])]),
        (corpus_shadows, [{"x": 3}]),
        (corpus_asyncio, [{"xs": xs} for xs in ([], [1, 2])]),
        (corpus_changes, [{"xs": xs} for xs in ([], [4], [1, -1, 2, 3], [5, 6, 7, 8])]),
    ]
    cases = [Case(program, kwargs) for program, rows in table for kwargs in rows]
    yes, no = (approval.name, True), (approval.name, False)
    cases += [
        Case(corpus_signal, {"who": "ann"}, (no,)),
        Case(corpus_signal, {"who": "bob"}, (yes, (amounts.name, 4), (amounts.name, 7))),
        Case(corpus_signal_in_time, {"seconds": 0.01}),
        Case(corpus_signal_in_time, {"seconds": 10}, (yes,)),
        Case(corpus_signal_in_time, {"seconds": 10}, (no, (amounts.name, 3))),
        Case(corpus_signal_never, {"x": 1}),
    ]
    return cases


CASES = _cases()

SIGNALS: dict[str, Signal[Any]] = {signal.name: signal for signal in (approval, amounts)}

PROGRAMS = list({case.program.name: case.program for case in CASES}.values())

DEFINITIONS = [*PROGRAMS, *steps.TASKS, corpus_workflow]
"""All that the programs call."""
