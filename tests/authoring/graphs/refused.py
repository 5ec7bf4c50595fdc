# fmt: off
# ruff: noqa: A002, B006, B007, B905, E501, E722, E731, F401, F821, F841, PLC0415, PLE0704, PLR1704, PLW0602, RUF005, RUF059, RET503, RET504, SIM105
# mypy: ignore-errors
"""Functions that can't be compiled. The comment at the end of a line is its problem: what; remedy."""

import asyncio
import datetime
from datetime import timedelta

import perdure
from perdure import Signal, gather, sleep
from tests.authoring.graphs.corpus_tasks import corpus_add, corpus_double, corpus_fail, corpus_total

OPENED = open  # a value that is no plain constant
NOON = datetime.time(12)
ready = Signal("refused-ready", int)


def helper(x):
    return x


async def coroutine(x):
    return x


async def with_statement(x):
    with x:  #! `with`; do it in a task
        pass


async def async_with(x):
    async with x:  #! `async with`; do it in a task
        pass


async def async_for(xs):
    async for x in xs:  #! `async for`; make the list in a task, and write `for`
        pass


async def inner_function(x):
    def inner(): ...  #! a function inside a graph; make it a task outside


async def inner_async_function(x):
    async def inner(): ...  #! a function inside a graph; make it a task or a graph outside


async def inner_class(x):
    class Inner: ...  #! a class inside a graph; define it outside


async def inner_import(x):
    import os  #! an import inside a graph; import at the top of the module
    from os import path  #! an import inside a graph; import at the top of the module


async def global_statement(x):
    global OPENED  #! `global`; return the value, or keep it in a task


async def del_statement(x):
    del x  #! `del`; build a new value without it: [x for x in xs if ...]


async def match_statement(x):
    match x:  #! `match`; write `if` and `elif`
        case 1:
            pass


async def except_star(x):
    try:  #! `except*`; write `except`
        await corpus_double(x)
    except* ValueError:
        pass


async def yielded(x):
    yield x


async def walrus(x):
    if (y := x) > 1:  #! `:=` can't be used in an expression; give the value a name in a step before
        return x


async def a_lambda(x):
    f = lambda y: y  #! a `lambda` can't be used in an expression; write a comprehension; only `key=lambda item: ...` of sorted, min and max is one
    return f


async def a_set(x):
    return {x, 1}  #! a set can't be used in an expression; write a list: [...]


async def loop_else(xs):
    for x in xs:
        if x:
            break
    else:
        x = 1  #! `else` of a loop; set a variable before `break`, and test it after the loop
    return x


async def finally_clause(x):
    try:
        await corpus_double(x)
    finally:
        x = 2  #! `finally`; write it after the `try`, and in an `except Exception:` that ends with `raise`
    return x


async def bare_except(x):
    try:
        await corpus_double(x)
    except:  #! `except:` without a type; write `except Exception:`
        pass


async def base_exception(x):
    try:
        await corpus_double(x)
    except BaseException:  #! `except BaseException`; name exceptions that are defined in modules, and are of type Exception
        pass


async def item_assignment(d, xs, x):
    d["a"] = 1  #! an assignment to `d['a']`; build a new value: `d = {**d, key: value}`, or a list with a comprehension
    d.a = 1  #! an assignment to `d.a`; build a new value: `d = {**d, key: value}`, or a list with a comprehension
    d["a"] += 1  #! an assignment to `d['a']`; build a new value: `d = {**d, key: value}`, or a list with a comprehension
    xs.append(x)  #! `xs.append(x)` changes a value in place; build a new one: `xs = [*xs, x]`
    d.update({"b": 2})  #! `d.update({'b': 2})` changes a value in place; build a new one: `d = {**d, **{'b': 2}}`


async def in_place(x):
    xs = []
    ys = xs
    xs += [x]  #! `xs += ...` changes a list or a dict in place; build a new one: `xs = [*xs, ...]`
    return ys


async def shared_by_a_name(x):
    xs = []
    ys = xs
    xs.append(x)  #! `xs.append(x)` changes a value in place; build a new one: `xs = [*xs, x]`
    return ys


async def shared_by_a_value(x):
    inner = {}
    both = [inner, inner]
    inner["a"] = x  #! an assignment to `inner['a']`; build a new value: `inner = {**inner, key: value}`, or a list with a comprehension
    return both


async def shared_by_a_view(x):
    d = {}
    seen = d.values()
    d[x] = x  #! an assignment to `d[x]`; build a new value: `d = {**d, key: value}`, or a list with a comprehension
    return [*seen]


async def appended_to_itself(x):
    xs = [x]
    xs.append(xs)  #! `xs.append(xs)` changes a value in place; build a new one: `xs = [*xs, xs]`
    return xs


async def changed_in_its_loop(x):
    xs = [x]
    for each in xs:
        if len(xs) < 3:
            xs.append(each)  #! `xs.append(each)` changes a value in place; build a new one: `xs = [*xs, each]`
    return xs


async def item_of_a_list(x):
    xs = [x]
    xs[0] = 1  #! an assignment to `xs[0]`; build a new value: `xs = {**xs, key: value}`, or a list with a comprehension
    return xs


async def plain_call(x):
    y = helper(x)  #! a call of helper; make it a task and write `await helper(...)`, or use the functions of expressions
    return y + asyncio.get_event_loop()  #! a call of asyncio.get_event_loop; make it a task and write `await asyncio.get_event_loop(...)`, or use the functions of expressions


async def unknown_names(x):
    y = unknown(x)  #! a call of 'unknown', which is not known here; define it above the graph
    await unknown(x)  #! an await of unknown(...), which is not known here; define it above the graph
    return y + other  #! the name 'other' is not known here; define it above the graph, or assign it first


async def no_constant(x):
    return [NOON, x]  #! 'NOON' is no plain constant; use texts, numbers, lists and dicts, or read it in a task


async def not_awaited(x):
    y = corpus_double(x)  #! a call of corpus_double that is not awaited; write `await corpus_double(...)`
    return await y  #! an await of `y`; await calls of tasks, workflows and graphs, `perdure.gather`, `perdure.sleep`, or a signal's `receive`


async def foreign_await(x):
    await asyncio.wait([x])  #! an await of asyncio.wait(...); use `perdure.gather`, `perdure.sleep`, or a task
    await coroutine(x)  #! an await of coroutine(...); make it a task; await calls of tasks, workflows and graphs, `perdure.gather`, `perdure.sleep`, or a signal's `receive`
    await perdure.first(corpus_double(x))  #! an await of perdure.first(...); await calls of tasks, workflows and graphs, `perdure.gather`, `perdure.sleep`, or a signal's `receive`; for the other verbs write a workflow


async def calls_itself(x):
    return await calls_itself(x)  #! calls_itself calls itself; write a loop


async def wrong_arguments(x):
    await corpus_add(x)  #! corpus_add() is missing the required argument 'b'; call it as it is defined
    await corpus_add(x, c=1)  #! corpus_add() is missing the required argument 'b'; call it as it is defined
    await corpus_add(*[1, x])  #! a call of corpus_add with * or **; spell the arguments out
    await corpus_add(**{"a": 1})  #! a call of corpus_add with * or **; spell the arguments out


async def conditional_await(x):
    y = x and await corpus_double(x)  #! an await inside `and` or `or`; await it in a statement of its own, under an `if` where it depends on something
    z = await corpus_double(1) if x else 2  #! an await inside `... if ... else ...`; await it in a statement of its own, under an `if` where it depends on something
    u = 1 < x < await corpus_double(x)  #! an await in a chain of comparisons; await it in a statement of its own, under an `if` where it depends on something
    v = [await corpus_double(i) for i in range(x)]  #! an await inside a comprehension; write `await perdure.gather(*[f(x) for x in xs])`, or a `for` loop
    w = f"{x:{await corpus_double(3)}}"  #! an await in the format of a value; await it in a statement of its own, under an `if` where it depends on something
    return [y, z, u, v, w]


async def gathered_otherwise(xs):
    calls = [1]
    await gather(*calls)  #! gather of `*calls`; give it calls of tasks, workflows and graphs, or one `*[f(x) for x in xs]`
    await gather(corpus_double(1), *[corpus_double(x) for x in xs])  #! gather of a list and more; gather the list on its own
    await gather(corpus_double(1), return_exceptions=True)  #! gather with return_exceptions=; put a `try` around what may fail, in a graph or a task of its own
    await gather(*[corpus_double(await corpus_double(x)) for x in xs])  #! an await inside a list that is gathered; await it before, or in a graph of its own that is gathered
    await gather(sleep(1), corpus_double(1))  #! an await of sleep(...); await calls of tasks, workflows and graphs, `perdure.gather`, `perdure.sleep`, or a signal's `receive`; for the other verbs write a workflow


async def waits(x):
    await sleep()  #! `sleep()`; write `sleep(duration)`
    await ready.receive(1, 2)  #! `ready.receive(1, 2)`; write `ready.receive(timeout)`
    await sleep(timedelta(fortnights=1))  #! a timedelta of unknown parts; give it days, seconds, microseconds, milliseconds, minutes, hours, weeks
    pause = timedelta(1)  #! a call of timedelta; make it a task and write `await timedelta(...)`, or use the functions of expressions
    return pause


async def errors_as_values(x):
    try:
        await corpus_double(x)
    except ValueError as e:
        y = e  #! the error 'e' as a value; an error is its type and its text here: use `str(e)`
        z = e.args[0]  #! `e.args`; an error is its type and its text here: use `str(e)`
        w = f"{e!r}"  #! the error 'e' as a value; an error is its type and its text here: use `str(e)`
        u = f"{e:>9}"  #! the error 'e' as a value; an error is its type and its text here: use `str(e)`
        v = isinstance(e, ValueError)  #! a call of isinstance; make it a task and write `await isinstance(...)`, or use the functions of expressions
        return [y, z, w, u, v]


async def error_is_variable(x):
    try:
        await corpus_double(x)
    except ValueError as x:  #! 'x' is an error and a variable; choose another name: Python deletes an error's name after its handler
        pass
    return x


async def raised_otherwise(x):
    if x == 1:
        raise KeyError("a")  #! `raise KeyError('a')`; raise an exception whose text is its only argument, such as ValueError
    if x == 2:
        raise ValueError("a", x)  #! `raise ValueError('a', x)`; raise an exception whose text is its only argument, such as ValueError
    if x == 3:
        raise  #! `raise` outside of `except`; name the exception to raise
    raise x  #! `raise x`; raise an exception that is defined in a module; define it above the graph


async def error_after_its_handler(x):
    try:
        await corpus_double(x)
    except ValueError as e:
        pass
    return e  #! the variable 'e' is read where nothing has set it; assign it before


async def never_set(x):
    if x:
        print_ = y  #! the variable 'y' is read where nothing has set it; assign it before
        y = 1
    return x


async def never_set_behind_others(x):
    first = x
    second = y  #! the variable 'y' is read where nothing has set it; assign it before
    third = await corpus_double(
        second + z,  #! the variable 'z' is read where nothing has set it; assign it before
    )
    y, z = 1, third
    return [first, y, z]


async def iterators_as_values(x, d):
    pairs = zip([1, 2], [3, 4])  #! `zip([1, 2], [3, 4])` as a value, which Python can iterate only once; write `list(zip([1, 2], [3, 4]))`
    r = reversed(x)  #! `reversed(x)` as a value, which Python can iterate only once; write `list(reversed(x))`
    if zip([], []):  #! `zip([], [])` as a value, which Python can iterate only once; write `list(zip([], []))`
        return len(enumerate("ab"))  #! `enumerate('ab')` as a value, which Python can iterate only once; write `list(enumerate('ab'))`
    a, b = c = enumerate(x)  #! `enumerate(x)` as a value, which Python can iterate only once; write `list(enumerate(x))`
    y = await corpus_total(reversed(x))  #! `reversed(x)` as a value, which Python can iterate only once; write `list(reversed(x))`
    z = {"r": reversed(x)}  #! `reversed(x)` as a value, which Python can iterate only once; write `list(reversed(x))`
    z = list(reversed(enumerate(x)))  #! `enumerate(x)` as a value, which Python can iterate only once; write `list(enumerate(x))`
    for k in y or zip(x):  #! `zip(x)` as a value, which Python can iterate only once; write `list(zip(x))`
        z = max(a, zip(x))  #! `zip(x)` as a value, which Python can iterate only once; write `list(zip(x))`
    return zip(pairs, r)  #! `zip(pairs, r)` as a value, which Python can iterate only once; write `list(zip(pairs, r))`


async def views_shown(d):
    a = str(range(3))  #! `range(3)` where it differs from a list; write `list(range(3))`
    b = range(3) == [0, 1, 2]  #! `range(3)` where it differs from a list; write `list(range(3))`
    c = f"{d.keys()}"  #! `d.keys()` where it differs from a list; write `list(d.keys())`
    e = [0] + range(3)  #! `range(3)` where it differs from a list; write `list(range(3))`
    return d.values()[0]  #! `d.values()` where it differs from a list; write `list(d.values())`


async def fields_of_dicts(order: dict[str, int], other, d: "dict"):
    made = {"a": 1}
    mixed = {"a": 1}
    mixed = other
    d = other
    x = made.a + other.a  #! `made.a`, a field of a dict; write `made['a']`
    y = [order.total for d in other]  #! `order.total`, a field of a dict; write `order['total']`
    z = {**other}.a  #! `{**other}.a`, a field of a dict; write `{**other}['a']`
    return [x, y, z, mixed.a, d.a, made.get("a")]


async def perhaps_set(xs):
    for x in xs:  #! the variable 'last' may have no value when this loop repeats; assign it before the loop
        if x:
            last = x
    return last


class Holder:
    async def method(
        self,  #! the parameter 'self' of a method; move the function out of its class, and pass what it needs of 'self'
        x,
    ):
        return self.y + x


held = Holder.method


async def unresolvable(
    n: "int",
    order: "NoSuchType",  #! the annotation of 'order' can't be resolved (name 'NoSuchType' is not defined); define or import what it names above the graph, or leave the annotation out
):
    return await corpus_fail(
        n,  #! n is of type int, and 'kind' is str; convert it, or pass another value
    )


async def many_arguments(
    *args,  #! the parameter '*args'; give each argument a parameter of its own
    **kwargs,  #! the parameter '**kwargs'; give each argument a parameter of its own
):
    return [args, kwargs]


async def arguments_of_other_types(n: str, items: list, len_: float):
    x = await corpus_double("text")  #! 'text' is no value for 'x', which is int; pass a value of that type
    y = await corpus_add(
        a=n,  #! n is of type str, and 'a' is int; convert it, or pass another value
        b=f"{x}",  #! f'{x}' is of type str, and 'b' is int; convert it, or pass another value
    )
    z = await gather(
        corpus_double(
            items + [y]  #! items + [y] is of type list, and 'x' is int; convert it, or pass another value
        ),
        corpus_total(n),  #! n is of type str, and 'numbers' is list[int]; convert it, or pass another value
    )
    return [z, await corpus_double(await corpus_double(None))]  #! None is no value for 'x', which is int; pass a value of that type


async def all_in_one_round(x):
    await sleep(-1)  #! -1 seconds; use a finite number, 0 or more
    with x:  #! `with`; do it in a task
        y = 1
    await corpus_double("text")  #! 'text' is no value for 'x', which is int; pass a value of that type
    await ready.receive(timeout="long")  #! 'long' is not a number of seconds; use an expression for a number
    return y + z  #! the name 'z' is not known here; define it above the graph, or assign it first


async def what_was_refused_is_of_no_type(x):
    n = "text"
    with x:  #! `with`; do it in a task
        n = 1
    await corpus_double(n)
    n = helper(x)  #! a call of helper; make it a task and write `await helper(...)`, or use the functions of expressions
    await corpus_double(n)
    await corpus_double(await coroutine(x))  #! an await of coroutine(...); make it a task; await calls of tasks, workflows and graphs, `perdure.gather`, `perdure.sleep`, or a signal's `receive`
    while True:
        raise x  #! `raise x`; raise an exception that is defined in a module; define it above the graph


async def parameters_with_names_of_functions(
    len,  #! 'len' is a function of expressions; use another name
    x,
    sum=0,  #! 'sum' is a function of expressions; use another name
):
    return len + x + sum


async def mutable_default(x=[]):  #! the default [] of 'x'; use a text, a number, True, False or None
    return x


async def method(x):
    return x.format(1)  #! there is no method 'format' in expressions; write an f-string: f"{value}"


async def private(x):
    return x._secret  #! '_secret' begins with an underscore; use names and fields without one
