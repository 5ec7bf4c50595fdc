import functools
import importlib.util
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent
from types import ModuleType
from typing import Any, cast

import pytest

from perdure.authoring.linter.checking import LintMode, lint, require_deterministic
from perdure.authoring.linter.rules import (
    ARGUMENT,
    AWAIT,
    COUNTING,
    DIGEST,
    IDENTITY,
    KEPT,
    NOW,
    RANDOM,
    SLEEP,
    SORTED,
    TASK,
    UUID,
)
from perdure.authoring.linter.scan import LintFinding
from perdure.core.errors import InputError, NotDeterministic

Load = Callable[[str], ModuleType]
Judge = Callable[[str], list[tuple[int, str]]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Makes a module of the user's out of its source."""

    def loaded(source: str) -> ModuleType:
        path = tmp_path / "checkout.py"
        path.write_text(dedent(source).lstrip("\n"))
        spec = importlib.util.spec_from_file_location("checkout", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return loaded


@pytest.fixture
def judge(load: Load) -> Judge:
    """Lines and names of the findings in the function `flow` of a source."""
    return lambda source: [(found.line, found.what) for found in lint(load(source).flow)]


@pytest.fixture
def judge_line(load: Load) -> Callable[[str, str], list[tuple[str, str]]]:
    """Names and verbs of the findings in a workflow of one statement, or a few."""

    def judged(imports: str, statement: str) -> list[tuple[str, str]]:
        body = indent(dedent(statement), "    ")
        source = f"{imports}\nasync def flow(self=None, xs=(), n=0):\n{body}\n"
        return [(found.what, found.instead) for found in lint(load(source).flow)]

    return judged


JudgeLine = Callable[[str, str], list[tuple[str, str]]]


@pytest.mark.parametrize(
    ("imports", "statement", "what", "instead"),
    [
        ("import time", "time.time()", "time.time", NOW),
        ("import time as t", "t.time()", "time.time", NOW),
        ("from time import time", "time()", "time.time", NOW),
        ("from time import time as t", "t()", "time.time", NOW),
        ("import time\nclock = time.monotonic", "clock()", "time.monotonic", NOW),
        ("import time", "clock = time.time\nclock()", "time.time", NOW),
        ("", "import time\ntime.time_ns()", "time.time_ns", NOW),
        ("", "import time as t\nt.perf_counter()", "time.perf_counter", NOW),
        ("", "from time import time as t\nt()", "time.time", NOW),
        ("import time", "time.gmtime()", "time.gmtime", NOW),
        ("import time", "time.strftime('%Y')", "time.strftime", NOW),
        ("import datetime", "datetime.datetime.now()", "datetime.datetime.now", NOW),
        ("import datetime as dt", "dt.datetime.utcnow()", "datetime.datetime.utcnow", NOW),
        ("from datetime import datetime", "datetime.now(None)", "datetime.datetime.now", NOW),
        ("from datetime import datetime as d", "d.today()", "datetime.datetime.today", NOW),
        ("from datetime import datetime", "datetime.now().date()", "datetime.datetime.now", NOW),
        ("from datetime import date", "date.today()", "datetime.date.today", NOW),
        (
            "from datetime import datetime\nnow = datetime.now",
            "now()",
            "datetime.datetime.now",
            NOW,
        ),
        ("", "from datetime import date\ndate.today()", "datetime.date.today", NOW),
        ("import time", "time.sleep(1)", "time.sleep", SLEEP),
        ("from time import sleep as nap", "nap(1)", "time.sleep", SLEEP),
        ("import random", "random.random()", "random.random", RANDOM),
        ("from random import choice", "choice([1])", "random.choice", RANDOM),
        ("from random import random", "random()", "random.random", RANDOM),
        ("import random", "random.shuffle([])", "random.shuffle", RANDOM),
        ("import random", "random.Random()", "random.Random", RANDOM),
        ("import random", "random.Random(None)", "random.Random", RANDOM),
        ("from random import Random", "Random()", "random.Random", RANDOM),
        ("from random import Random\nr = Random(7)", "r.random()", "random.Random.random", RANDOM),
        ("import random", "random.SystemRandom().random()", "random.SystemRandom", RANDOM),
        ("import secrets", "secrets.token_hex(8)", "secrets.token_hex", RANDOM),
        ("from secrets import choice", "choice([1])", "secrets.choice", RANDOM),
        ("import os", "os.urandom(8)", "os.urandom", RANDOM),
        ("from os import urandom", "urandom(8)", "os.urandom", RANDOM),
        ("import uuid", "uuid.uuid4()", "uuid.uuid4", UUID),
        ("from uuid import uuid1 as u", "u()", "uuid.uuid1", UUID),
        ("import uuid", "str(uuid.uuid7())", "uuid.uuid7", UUID),
        ("import asyncio", "asyncio.run(n)", "asyncio.run", AWAIT),
        ("from asyncio import Runner", "Runner()", "asyncio.Runner", AWAIT),
        ("import asyncio", "await asyncio.open_connection(n)", "asyncio.open_connection", TASK),
        ("import asyncio", "await asyncio.to_thread(print)", "asyncio.to_thread", TASK),
        ("", "await n.run_in_executor(None, print)", "run_in_executor", TASK),
        ("import threading", "threading.Thread()", "threading.Thread", TASK),
        ("from threading import Lock", "Lock()", "threading.Lock", TASK),
        ("import multiprocessing", "multiprocessing.Process()", "multiprocessing.Process", TASK),
        (
            "from concurrent.futures import ThreadPoolExecutor",
            "ThreadPoolExecutor()",
            "concurrent.futures.ThreadPoolExecutor",
            TASK,
        ),
        ("", "open('x')", "open", TASK),
        ("", "with open('x') as f: f", "open", TASK),
        ("import io", "io.open('x')", "io.open", TASK),
        ("read = open", "read('x')", "open", TASK),
        ("", "input()", "input", TASK),
        ("import sys", "for line in sys.stdin: line", "sys.stdin", TASK),
        ("import os", "os.listdir('.')", "os.listdir", TASK),
        ("import os", "os.path.exists('.')", "os.path.exists", TASK),
        ("from os.path import isfile", "isfile('.')", "os.path.isfile", TASK),
        ("from pathlib import Path", "Path('x').read_text()", "pathlib.Path.read_text", TASK),
        ("import pathlib", "pathlib.Path('x').open()", "pathlib.Path.open", TASK),
        ("from pathlib import Path", "(Path('x') / 'y').exists()", "pathlib.Path.exists", TASK),
        (
            "from pathlib import Path",
            "p = Path('x')\np.write_text('')",
            "pathlib.Path.write_text",
            TASK,
        ),
        ("from pathlib import Path", "Path('x').parent.mkdir()", "pathlib.Path.mkdir", TASK),
        ("from pathlib import Path\nP = Path()", "(P / 'x').touch()", "pathlib.Path.touch", TASK),
        ("from pathlib import Path", "Path.cwd()", "pathlib.Path.cwd", TASK),
        ("import subprocess", "subprocess.run(['x'])", "subprocess.run", TASK),
        (
            "from subprocess import check_output",
            "check_output('x')",
            "subprocess.check_output",
            TASK,
        ),
        ("import socket", "socket.socket()", "socket.socket", TASK),
        (
            "from socket import create_connection",
            "create_connection(n)",
            "socket.create_connection",
            TASK,
        ),
        ("import smtplib", "smtplib.SMTP('x')", "smtplib.SMTP", TASK),
        ("import sqlite3", "sqlite3.connect('x')", "sqlite3.connect", TASK),
        ("import urllib.request", "urllib.request.urlopen('x')", "urllib.request.urlopen", TASK),
        ("from urllib.request import urlopen", "urlopen('x')", "urllib.request.urlopen", TASK),
        ("", "import urllib.request\nurllib.request.urlopen('x')", "urllib.request.urlopen", TASK),
        ("import os", "os.environ['HOME']", "os.environ", ARGUMENT),
        ("import os", "os.environ.get('HOME')", "os.environ", ARGUMENT),
        ("from os import environ as e", "'HOME' in e", "os.environ", ARGUMENT),
        ("import os", "os.getenv('HOME')", "os.getenv", ARGUMENT),
        ("from os import getenv", "getenv('HOME')", "os.getenv", ARGUMENT),
        ("", "hash('x')", "hash", DIGEST),
        ("digest = hash", "digest(n)", "hash", DIGEST),
        ("", "id(self)", "id", IDENTITY),
        ("", "xs = {*xs, 1}\nset(xs).pop()", "set.pop", SORTED),
        ("", "s: set[str] = set()\ns.pop()", "set.pop", SORTED),
    ],
)
def test_every_spelling_is_found_and_gets_its_verb(
    judge_line: JudgeLine, imports: str, statement: str, what: str, instead: str
) -> None:
    assert set(judge_line(imports, statement)) == {(what, instead)}


@pytest.mark.parametrize(
    ("imports", "statement"),
    [
        pytest.param("", "print(n)", id="print"),
        pytest.param("import logging", "logging.info('x')", id="logging"),
        pytest.param("def time(): return 1", "time()", id="a function of the user's own"),
        pytest.param("import time", "time = self.time\ntime()", id="a local variable"),
        pytest.param("import time", "for time in xs: time()", id="a loop variable"),
        pytest.param("import time", "with self as time: time()", id="a with variable"),
        pytest.param("import time", "[time() for time in xs]", id="a comprehension's variable"),
        pytest.param("import time", "f = lambda time: time()", id="a lambda's parameter"),
        pytest.param("import time", "if time := n: time.time()", id="a walrus"),
        pytest.param("import time", "match n:\n    case {**time}: time.time()", id="a capture"),
        pytest.param("import time", "try: n\nexcept Exception as time: time.time()", id="an error"),
        pytest.param("import time", "def time(): pass\ntime()", id="a nested function"),
        pytest.param("import time", "self.time.time()", id="an attribute of a value"),
        pytest.param("import time", "n.sleep(1)", id="a method of a value"),
        pytest.param("import time", "f = time.strptime", id="a mention without a call"),
        pytest.param("import time", "time.gmtime(n)", id="a given time"),
        pytest.param("import time", "time.strftime('%Y', n)", id="a given time to format"),
        pytest.param("import datetime", "x: datetime.datetime = n", id="an annotation"),
        pytest.param("import os", "x: os.environ = n", id="an annotation that is not run"),
        pytest.param("import datetime", "isinstance(n, datetime.datetime)", id="isinstance"),
        pytest.param("import datetime", "datetime.timedelta(days=1)", id="timedelta"),
        pytest.param("import datetime", "datetime.datetime(2024, 1, 1)", id="a fixed time"),
        pytest.param("from datetime import datetime", "datetime.fromisoformat('')", id="parsing"),
        pytest.param(
            "from datetime import date\nD = date(1, 1, 1)", "D.isoformat()", id="a constant"
        ),
        pytest.param("import uuid", "uuid.UUID(int=1)", id="a given UUID"),
        pytest.param("import uuid", "uuid.uuid5(n, 'x')", id="a UUID by name"),
        pytest.param("import random", "random.Random(n).random()", id="a seed"),
        pytest.param("import random", "r = random.Random(x=n)\nr.choice(xs)", id="a named seed"),
        pytest.param("import random", "random.Random(*xs)", id="an unpacked seed"),
        pytest.param("N = 53", "N.bit_length()", id="a number that random happens to have too"),
        pytest.param("import secrets", "secrets.compare_digest('', '')", id="comparing secrets"),
        pytest.param(
            "import asyncio", "try: n\nexcept asyncio.CancelledError: raise", id="cancellation"
        ),
        pytest.param(
            "import asyncio",
            "async with asyncio.timeout(1), asyncio.TaskGroup() as g:\n    g.create_task(xs)\n"
            "    await asyncio.gather(*xs)\n    await asyncio.wait_for(asyncio.sleep(1), 2)",
            id="asyncio that waits for nothing outside",
        ),
        pytest.param(
            "import subprocess", "raise subprocess.TimeoutExpired('x', 1)", id="an exception"
        ),
        pytest.param(
            "from pathlib import Path", "Path('x').with_suffix('.y').name", id="a pure path"
        ),
        pytest.param("import os", "os.path.join('x', 'y')", id="joining paths"),
        pytest.param("import urllib.parse", "urllib.parse.quote('x')", id="quoting"),
        pytest.param("import queue\nfrom collections import deque", "deque()", id="a deque"),
        pytest.param("import queue\nfrom heapq import heappop", "heappop(xs)", id="a heap"),
        pytest.param("", "undefined()", id="an undefined name"),
        pytest.param("", "from .clock import time\ntime()", id="a relative import"),
        pytest.param("", "import perdure\nawait perdure.sleep(1)", id="a verb of ours"),
        pytest.param("def hash(x): return 1", "hash(n)", id="a hash of the user's own"),
        pytest.param("", "id = self.id\nid(n)", id="a local variable named id"),
        pytest.param("import hashlib", "hashlib.sha256(b'x')", id="a digest"),
    ],
)
def test_deterministic_code_is_accepted(
    judge_line: JudgeLine, imports: str, statement: str
) -> None:
    assert judge_line(imports, statement) == []


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("for x in {'a', 'b'}: x", id="a display"),
        pytest.param("for x in {x.name for x in xs}: x", id="a set comprehension"),
        pytest.param("for x in set(xs): x", id="set"),
        pytest.param("for x in frozenset(xs): x", id="frozenset"),
        pytest.param("names = set(xs)\nfor x in names: x", id="a name"),
        pytest.param("names: set[str] = set()\nfor x in names: x", id="an annotated name"),
        pytest.param("s = set()\nif n: s = {n}\nfor x in s: x", id="a name with two sets"),
        pytest.param("s = set()\ns |= {n}\nfor x in s: x", id="a set that is added to"),
        pytest.param("for x in set(xs) - {n}: x", id="a difference"),
        pytest.param("s = set(xs)\nt = s.union(n)\nfor x in t: x", id="a union"),
        pytest.param("for x in COLOURS: x", id="a constant of the module"),
        pytest.param("for x in FROZEN: x", id="a frozen constant of the module"),
        pytest.param("s = set(xs)\nlambda: [x for x in s]", id="a closure"),
        pytest.param("[x for x in set(xs)]", id="a list comprehension"),
        pytest.param("{x: n for x in set(xs)}", id="a dict comprehension"),
        pytest.param("[y for x in xs for y in {x, n}]", id="an inner loop"),
        pytest.param("{await self.step(x) for x in set(xs)}", id="steps in a set comprehension"),
        pytest.param("sorted([await self.step(x) for x in set(xs)])", id="steps that are sorted"),
        pytest.param("list(set(xs))", id="list"),
        pytest.param("for x in list(set(xs)): x", id="a list of a set"),
        pytest.param("for i, x in enumerate(set(xs)): x", id="enumerate"),
        pytest.param("sorted(enumerate(set(xs)))", id="enumerate that is sorted too late"),
        pytest.param("zip(xs, set(xs))", id="zip"),
        pytest.param("next(iter(set(xs)))", id="iter"),
        pytest.param("map(self.step, set(xs))", id="map"),
        pytest.param("', '.join(set(xs))", id="join"),
        pytest.param("dict.fromkeys(set(xs))", id="fromkeys"),
        pytest.param("self.gather(*set(xs))", id="arguments"),
        pytest.param("[n, *set(xs)]", id="a list display"),
        pytest.param("def inner(): yield from set(xs)", id="yield from"),
        pytest.param("helper(xs)", id="a function of the module"),
        pytest.param("a, b = {'a', 'b'}", id="unpacking"),
        pytest.param("a, *b = set(xs)", id="unpacking the rest"),
        pytest.param("[*a] = set(xs)", id="unpacking all"),
    ],
)
def test_the_order_of_a_set_is_found(judge_line: JudgeLine, statement: str) -> None:
    assert judge_line(SETS, statement) == [("iteration over a set", SORTED)]


SETS = """
COLOURS, FROZEN = {"red", "blue"}, frozenset({"red", "blue"})
class Ordered(set): ...
ORDERED = Ordered()
def helper(xs): return [x for x in set(xs)]
"""


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("n in set(xs)", id="membership"),
        pytest.param("if n in COLOURS: n", id="membership in a constant"),
        pytest.param("len(set(xs))", id="len"),
        pytest.param("for x in sorted(set(xs)): x", id="sorted"),
        pytest.param("for x in sorted(COLOURS): x", id="a sorted constant"),
        pytest.param("sorted(x.name for x in set(xs))", id="a sorted comprehension"),
        pytest.param("sorted([x.name for x in set(xs)])", id="a sorted list comprehension"),
        pytest.param("sorted([*set(xs), n])", id="a sorted display"),
        pytest.param("sorted(list(set(xs)))", id="a sorted list"),
        pytest.param("names = list(set(xs))\nnames.sort()", id="a list that is sorted in place"),
        pytest.param("names = [x for x in set(xs)]\nnames.sort()", id="one made by a loop"),
        pytest.param("sorted(x for x in set(await self.step(n)))", id="a step that gives a set"),
        pytest.param("sum(x.price for x in set(xs)), max(set(xs)), any(set(xs))", id="reductions"),
        pytest.param("{x.name for x in set(xs)}", id="a set of a set"),
        pytest.param("{*set(xs), n}", id="a set display of a set"),
        pytest.param("set(map(str, set(xs)))", id="a set of a map"),
        pytest.param("set(xs) & {n} | COLOURS - FROZEN ^ set()", id="operators"),
        pytest.param("set(xs).union(*{n}).issubset(x for x in {n})", id="methods"),
        pytest.param("s = set()\ns.add(n)\ns.discard(n)\ns.update({n})", id="changes"),
        pytest.param("set(xs) == {n}, set(xs) <= {n}", id="comparisons"),
        pytest.param("await self.step(set(xs))", id="an argument"),
        pytest.param("for x in xs: x", id="an unknown iterable"),
        pytest.param("xs = set(xs)\nfor x in xs: x", id="a parameter that is bound again"),
        pytest.param("s = set(xs)\ns = sorted(s)\nfor x in s: x", id="a name with a list, too"),
        pytest.param("s = set(xs)\ns |= n\nfor x in s: x", id="a name with who knows what"),
        pytest.param("s = set(xs)\nfor s in xs: [x for x in s]", id="a loop variable"),
        pytest.param("s = {n}\n[y for s in xs for y in s]", id="a comprehension's variable"),
        pytest.param(
            "s = {n}\ndef fill():\n    nonlocal s\n    s = [n]\nfill()\nfor x in s: x",
            id="a name that is bound again elsewhere",
        ),
        pytest.param("set = self.set\nfor x in set(xs): x", id="a set of the user's own"),
        pytest.param("for x in ORDERED: x", id="a subclass that may have an order"),
        pytest.param("for x in {'a': 1, 'b': 2}: x", id="a dict"),
        pytest.param("for x in dict.fromkeys(xs): x", id="a dict in place of a set"),
        pytest.param("import perdure\n@perdure.task\ndef t(): return list({n})", id="a task"),
        pytest.param("(a,) = {n}", id="unpacking the only item"),
        pytest.param("a, b = sorted({n, 1})", id="unpacking a sorted set"),
    ],
)
def test_sets_whose_order_does_not_matter_are_accepted(
    judge_line: JudgeLine, statement: str
) -> None:
    assert judge_line(SETS, statement) == []


def test_set_iteration_finding_has_line_and_remedy(load: Load) -> None:
    source = """
        async def flow():
            for name in {
                "a", "b",
            }:
                await name
    """
    (found,) = lint(load(source).flow)
    assert str(found) == "checkout.py:2: iteration over a set in a workflow: use sorted(...)"


def test_defaults_and_annotations_of_the_workflow_are_not_part_of_a_run(judge: Judge) -> None:
    source = """
        import os, time
        async def flow(at: time.time() = time.time()) -> os.environ: ...
    """
    assert judge(source) == []


def test_findings_are_in_the_order_of_lines_and_once_per_line(judge: Judge) -> None:
    source = """
        import random, time
        def later():
            return random.random()
        async def flow():
            async with a(b=[{"x": time.time() - time.time()}]):
                return later(), (
                    time
                    .monotonic()
                )
    """
    assert judge(source) == [(3, "random.random"), (5, "time.time"), (8, "time.monotonic")]


def test_helpers_are_followed_through_each_other_and_themselves(judge: Judge) -> None:
    source = """
        import time
        def even(n):
            return n == 0 or odd(n - 1)
        async def odd(n):
            time.time()
            return n != 0 and await even(n - 1)
        async def flow():
            await flow()
            return even(4)
        def unrelated():
            time.time()
    """
    assert judge(source) == [(5, "time.time")]


def test_a_lambda_and_a_static_method_are_followed(judge: Judge) -> None:
    source = """
        import time
        stamp = lambda: time.time()
        class Clock:
            @staticmethod
            def read():
                return time.monotonic()
        async def flow():
            return stamp(), Clock.read()
    """
    assert judge(source) == [(2, "time.time"), (6, "time.monotonic")]


def test_a_helper_defined_below_its_workflow_is_followed(
    load: Load,
) -> None:
    source = """
        import time
        from perdure.authoring.linter.checking import lint
        def judged(fn):
            fn.findings = lint(fn)
            return fn
        @judged
        async def flow():
            return helper(), task_below()
        def helper():
            return deeper()
        def deeper():
            return time.time()
        @staticmethod
        def task_below():
            return time.time()
    """
    assert [found.line for found in load(source).flow.findings] == [12]


def test_a_helper_of_another_module_is_not_followed(load: Load) -> None:
    source = """
        from textwrap import dedent
        async def flow(fn):
            return dedent("x"), fn()
    """
    assert lint(load(source).flow) == []


def test_objects_are_not_followed_whatever_they_wrap(judge: Judge) -> None:
    source = """
        import functools, time
        class Task:
            def __init__(self, fn):
                functools.update_wrapper(self, fn)
            def __call__(self): ...
        @Task
        def charge():
            return time.time()
        fetch = Task(time.time)
        async def flow():
            return charge(), fetch()
    """
    assert judge(source) == []


def test_tasks_defined_inside_a_workflow_are_not_linted(judge: Judge) -> None:
    source = """
        import time
        async def flow():
            import perdure
            @perdure.task(retries=int(time.time()))
            def charge():
                return time.monotonic()
            return await charge()
    """
    assert judge(source) == [(4, "time.time")]


def test_functions_comprehensions_and_classes_within_are_read_in_their_own_scopes(
    judge: Judge,
) -> None:
    source = """
        import time, uuid
        async def flow(xs):
            def inner(at=time.time()):
                def innermost(uuid):
                    return uuid.uuid4(), time.time()
                return innermost(at)
            key = lambda x: uuid.uuid4()
            ids = {x: uuid.uuid1() async for x in xs if uuid.uuid4()}
            class Local:
                time = time.time()
                def read(self, *, n=uuid.uuid1()) -> time.time():
                    return time.time()
            return [time async for time in xs], time.time()
    """
    assert judge(source) == [
        (3, "time.time"),
        (5, "time.time"),
        (7, "uuid.uuid4"),
        (8, "uuid.uuid1"),
        (8, "uuid.uuid4"),
        (10, "time.time"),
        (11, "uuid.uuid1"),
        (12, "time.time"),
        (13, "time.time"),
    ]


def test_a_closure_is_followed_unless_its_cell_is_empty(judge: Judge) -> None:
    source = """
        def make():
            from time import time as clock
            def helper():
                return clock()
            async def flow():
                return clock(), helper(), never()
            return flow
            never = 1
        flow = make()
    """
    assert judge(source) == [(4, "time.time"), (6, "time.time")]


def test_counting_in_a_global_is_found_in_the_workflow_and_in_its_helpers(load: Load) -> None:
    module = load("""
        number = 0

        def bump():
            global number
            number += 1

        async def flow():
            global number
            number += 1
            bump()
        """)
    found = lint(module.flow)
    assert [(each.line, each.what, each.instead) for each in found] == [
        (5, COUNTING, KEPT),
        (9, COUNTING, KEPT),
    ]
    assert str(found[1]).endswith("checkout.py:9: counting in a global in a workflow: use " + KEPT)


def test_counting_in_a_local_and_a_cache_in_a_global_are_accepted(judge: Judge) -> None:
    source = """
        cached = None

        def look():
            global cached
            cached = cached or 1
            def count():
                cached = 1
                cached += 1
                return cached
            return count()

        async def flow():
            number = 0
            number += 1
            return look() + number
        """
    assert judge(source) == []


def test_a_closure_shadows_a_global(judge: Judge) -> None:
    source = """
        from time import time
        def make(time):
            async def flow():
                return time()
            return flow
        flow = make(len)
    """
    assert judge(source) == []


def test_functions_under_wrapping_decorators_are_linted(judge: Judge) -> None:
    source = """
        import functools, time
        from contextlib import contextmanager
        def traced(fn):
            @functools.wraps(fn)
            async def wrapper():
                return await fn()
            return wrapper
        @contextmanager
        def lock():
            yield time.time()
        @traced
        @traced
        async def flow():
            with lock():
                return time.time()
    """
    assert judge(source) == [(10, "time.time"), (15, "time.time")]


def test_methods_are_read_bound_and_unbound(load: Load) -> None:
    source = """
        import time
        class Shop:
            async def flow(self):
                return time.time()
            @classmethod
            async def sale(cls):
                return time.monotonic()
    """
    shop = load(source).Shop
    found = [lint(method)[0].what for method in (shop.flow, shop().flow, shop.sale)]
    assert found == ["time.time", "time.time", "time.monotonic"]


def test_a_module_is_judged_by_name_where_it_is_loaded(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, inner = ModuleType("requests"), ModuleType("requests.sessions")
    code = "class Session:\n    def get(self): ...\nclass Bad(Exception): ...\ndef get(): ..."
    exec(code, vars(inner))
    vars(package).update(Session=inner.Session, get=inner.get, Bad=inner.Bad)
    monkeypatch.setitem(sys.modules, "requests", package)
    monkeypatch.setitem(sys.modules, "requests.sessions", inner)
    source = """
        import requests
        from requests import get
        session = requests.Session()
        async def flow():
            requests.get()
            get()
            session.get()
            raise requests.Bad()
    """
    found = [(5, "requests.get"), (6, "requests.get"), (7, "requests.Session.get")]
    assert judge(source) == found


@pytest.mark.parametrize("name", ["httpx", "aiohttp", "urllib3", "psycopg", "boto3"])
def test_a_module_is_judged_by_name_where_it_is_not_loaded_and_never_imported(
    judge_line: JudgeLine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delitem(sys.modules, name, raising=False)
    assert judge_line("", f"import {name} as m\nm.connect()") == [(f"{name}.connect", TASK)]
    assert judge_line("", f"from {name}.x import y\ny()") == [(f"{name}.x.y", TASK)]
    assert name not in sys.modules


def test_module_whose_name_starts_like_a_forbidden_one_is_accepted(judge_line: JudgeLine) -> None:
    assert judge_line("", "import sockets_of_mine as s\ns.connect()") == []


def test_forbidden_function_reexported_by_a_module_is_found(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = ModuleType("clocks")
    exec("from datetime import datetime\nfrom time import time as read", vars(clocks))
    monkeypatch.setitem(sys.modules, "clocks", clocks)
    source = """
        import clocks
        async def flow():
            return clocks.read(), clocks.datetime.now()
    """
    assert judge(source) == [(3, "time.time"), (3, "datetime.datetime.now")]


def test_the_linter_runs_no_code_of_the_users_objects(judge: Judge) -> None:
    source = """
        class Touchy:
            def __getattribute__(self, name):
                raise AssertionError(name)
        touchy = Touchy()
        async def flow():
            return touchy.a.b(), touchy()
    """
    assert judge(source) == []


def test_a_forbidden_function_of_an_alternative_import_is_found(judge: Judge) -> None:
    source = """
        async def flow():
            try:
                from random import random as draw
            except ImportError:
                from mine import random as draw
            return draw()
    """
    assert judge(source) == [(6, "random.random")]


def test_without_source_nothing_is_found() -> None:
    space: dict[str, Any] = {}
    exec("import time\nasync def flow():\n    return time.time()", space)
    assert lint(space["flow"]) == []
    require_deterministic(space["flow"], "error")


@pytest.mark.parametrize("text", ["", "def other(): pass\n", "not Python (", "\0"])
def test_a_file_that_changed_since_it_was_loaded_is_not_judged(load: Load, text: str) -> None:
    module = load("import time\nasync def flow():\n    return time.time()\n")
    assert module.__file__ is not None
    Path(module.__file__).write_text(text)
    assert lint(module.flow) == []


@pytest.mark.parametrize("thing", [len, functools.partial(print), int, cast(Any, 5)])
def test_objects_that_are_no_functions_have_no_findings(thing: Callable[..., Any]) -> None:
    assert lint(thing) == []


def test_two_lambdas_on_one_line_are_ambiguous_and_not_linted(judge: Judge) -> None:
    assert judge("import time\nflow, b = (lambda: time.time()), (lambda: 1)\n") == []


def test_parsing_repeats_no_warning_of_the_source(load: Load) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = load('import time\nasync def flow():\n    return "\\d", time.time()\n')
    assert [found.line for found in lint(module.flow)] == [3]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is of Python 3.12")
def test_type_parameters_and_aliases_are_not_evaluated(judge: Judge) -> None:
    source = """
        import os, time
        async def flow[T](x: T) -> T:
            type X = os.environ
            def inner[S](s: S) -> S:
                return time.time()
    """
    assert judge(source) == [(5, "time.time")]


def test_a_finding_reads_as_a_sentence() -> None:
    call = LintFinding("shop/checkout.py", 12, "time.time", NOW)
    assert str(call) == "checkout.py:12: time.time() in a workflow: use perdure.now()"
    read = LintFinding("checkout.py", 3, "os.environ", ARGUMENT)
    assert str(read) == (
        "checkout.py:3: os.environ in a workflow: use an argument, or a @task that reads it"
    )


TWO_FINDINGS = """
    import random, time

    async def flow():
        await x(time.time())
        return random.random()
"""

SENTENCES = """\
workflow 'flow' may take another path when it is replayed: change these lines
  checkout.py:4: time.time() in a workflow: use perdure.now()
  checkout.py:5: random.random() in a workflow: use perdure.random()"""


def test_an_error_names_every_finding(load: Load) -> None:
    with pytest.raises(NotDeterministic) as caught:
        require_deterministic(load(TWO_FINDINGS).flow, "error")
    assert str(caught.value) == SENTENCES


def test_a_warning_names_every_finding_and_stands_at_the_workflow(load: Load) -> None:
    module = load(TWO_FINDINGS)
    with pytest.warns(RuntimeWarning) as caught:
        require_deterministic(module.flow, "warn")
    (warning,) = caught
    assert str(warning.message) == SENTENCES
    assert (warning.filename, warning.lineno) == (module.__file__, 3)


def test_mode_off_reports_nothing(load: Load) -> None:
    require_deterministic(load(TWO_FINDINGS).flow, "off")


@pytest.mark.parametrize("mode", ["error", "warn", "off"])
def test_a_clean_workflow_passes_in_every_mode(load: Load, mode: LintMode) -> None:
    require_deterministic(load("async def flow(): return 1\n").flow, mode)


def test_an_unknown_mode_is_refused_even_for_a_clean_workflow(load: Load) -> None:
    with pytest.raises(InputError, match="'loud'"):
        require_deterministic(load("async def flow(): return 1\n").flow, cast(LintMode, "loud"))


def test_a_function_of_a_module_that_is_parsed_takes_less_than_2_ms(load: Load) -> None:
    steps = "\n".join(f"    a{n} = await charge(order.lines[{n}], key=str({n}))" for n in range(12))
    other = "\n".join(f"def other{n}(x):\n    return x + {n}\n" for n in range(300))
    flow = load(f"{other}\nasync def flow(order, charge):\n{steps}\n    return other7(a3)\n").flow
    lint(flow)
    times_s = []
    for _ in range(20):
        start_s = time.perf_counter()
        lint(flow)
        times_s.append(time.perf_counter() - start_s)
    assert min(times_s) < 0.002
