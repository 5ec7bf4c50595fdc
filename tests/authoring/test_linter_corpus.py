"""Indirect violations: through helpers, methods, aliases, references, lookups by name, and module-level state."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent
from types import ModuleType

import pytest

from perdure.authoring.linter.checking import lint

HELPERS = """
    import functools, itertools, os, random, time, uuid
    from collections import Counter, deque
    from dataclasses import dataclass, field
    from datetime import datetime
    import linted_deeper
    from linted_deeper import stamp

    now = datetime.now
    roll = random.randint
    wait = functools.partial(time.sleep, 1)
    COLOURS = {"red", "green"}

    def read(): return time.time()
    def through(): return read()
    def deep(): return linted_deeper.stamp()
    def deep_name(): return stamp()
    async def later(): return uuid.uuid4()
    def by_getattr(): return getattr(time, "monotonic")()
    def names(): return {"a", "b"}
    def more_names(): return names() | {"c"}
    def annotated(xs) -> set[str]:
        found = xs
        return found
    async def names_later(): return set("ab")
    def sorted_names(): return sorted(names())
    def ordered(): return ["a", "b"]
    def total(): return sum(len(name) for name in names())
    def decorated(fn):
        @functools.wraps(fn)
        def inner(*args): return fn(*args)
        return inner
    @decorated
    def wrapped(): return os.urandom(4)

    class Clock:
        offset = 3
        def __init__(self, zone=None): self.zone = zone
        def read(self): return time.time()
        def twice(self): return self.read() + self.read()
        @classmethod
        def make(cls): return cls.read_class()
        @classmethod
        def read_class(cls): return time.time()
        @staticmethod
        def read_static(): return time.time()
        @property
        def current(self): return time.time()
        def __call__(self): return os.urandom(4)
        def names(self): return {"a", "b"}
        def add(self, number): return number + self.offset
        @property
        def zone_name(self): return str(self.zone)

    class Slow(Clock):
        def slow(self): return self.twice()

    class Eager:
        def __init__(self): self.at = time.time()

    @dataclass
    class Stamped:
        name: str
        def __post_init__(self): self.at = time.time()

    @dataclass
    class Plain:
        name: str
        items: list = field(default_factory=list)
        def count(self): return len(self.items)

    clock = Clock()
    plain = Plain("a")
    dice = random.Random(7)
    ticks = itertools.count()
    CACHE, QUEUE, SEEN, TOTALS = [], deque(), {}, Counter()
    HANDLERS = {"read": read, "clock": time.time, "add": clock.add}

    class Game:
        sides = random.Random(7)
        def __init__(self):
            self.dice, self.clock, self.log, self.number = random.Random(7), time.time, [], 0

    class Board:
        def __init__(self):
            self.log, self.number = [], 0
            self.log.append("made")
        def play(self):
            self.log.append("played")
            self.number += 1
            return self.number

    game = Game()
"""

DEEPER = """
    import time
    def stamp(): return time.time_ns()
"""

WRONG = [
    ("h.read()", "time.time"),
    ("read()", "time.time"),
    ("h.through()", "time.time"),
    ("h.deep()", "time.time_ns"),
    ("h.deep_name()", "time.time_ns"),
    ("await h.later()", "uuid.uuid4"),
    ("h.by_getattr()", "time.monotonic"),
    ("h.now()", "datetime.datetime.now"),
    ("now()", "datetime.datetime.now"),
    ("h.roll(1, 6)", "random.randint"),
    ("h.wait()", "time.sleep"),
    ("h.wrapped()", "os.urandom"),
    ("getattr(time, 'time')()", "time.time"),
    ("clock_of = getattr(time, 'time')\nclock_of()", "time.time"),
    ("functools.partial(time.time)()", "time.time"),
    ("alias = h.read\nalias()", "time.time"),
    ("h.clock.read()", "time.time"),
    ("h.clock.twice()", "time.time"),
    ("h.Clock().read()", "time.time"),
    ("c = h.Clock()\nc.twice()", "time.time"),
    ("h.Clock.make()", "time.time"),
    ("h.Clock.read_static()", "time.time"),
    ("h.clock.current", "time.time"),
    ("h.Slow().slow()", "time.time"),
    ("h.Eager()", "time.time"),
    ("h.Stamped('a')", "time.time"),
    ("getattr(h.clock, 'read')()", "time.time"),
    ("[h.read() for x in xs]", "time.time"),
    ("(lambda: h.read())()", "time.time"),
    ("h.clock()", "os.urandom"),
    ("h.Slow()()", "os.urandom"),
    ("c = h.Clock()\nc()", "os.urandom"),
    ("eval('time.time()')", "eval"),
    ("exec('x = 1')", "exec"),
    ("own.read()", "time.time"),
    ("Own().read()", "time.time"),
    ("for x in h.names(): x", "iteration over a set"),
    ("for x in h.more_names(): x", "iteration over a set"),
    ("for x in h.annotated(xs): x", "iteration over a set"),
    ("for x in await h.names_later(): x", "iteration over a set"),
    ("for x in h.clock.names(): x", "iteration over a set"),
    ("[x for x in names()]", "iteration over a set"),
    ("a, b = names()", "iteration over a set"),
    ("found = names()\nlist(found)", "iteration over a set"),
    ("{'a': time.time}['a']()", "time.time"),
    ("(f := time.time)()", "time.time"),
    ("f = time.time", "time.time"),
    ("if xs and (f := h.read): f()", "time.time"),
    ("max(xs, key=time.time)", "time.time"),
    ("[time.time, len][0]()", "time.time"),
    ("call = getattr(time, 'time')", "time.time"),
    ("def inner(clock=time.time): return clock()", "time.time"),
    ("list(map(h.read, xs))", "time.time"),
    ("sorted(xs, key=read)", "time.time"),
    ("map(h.through, xs)", "time.time"),
    ("map(h.clock.read, xs)", "time.time"),
    ("{'a': h.read}['a']()", "time.time"),
    ("sorted(xs, key=hash)", "hash"),
    ("__import__('time').time()", "time.time"),
    ("__import__('os.path').getpid()", "os.getpid"),
    ("importlib.import_module('time').time()", "time.time"),
    ("sys.modules['time'].time()", "time.time"),
    ("vars(time)['time']()", "time.time"),
    ("time.__dict__['time']()", "time.time"),
    ("globals()['read']()", "time.time"),
    ("globals()['time'].time()", "time.time"),
    ("h.HANDLERS['clock']()", "time.time"),
    ("h.HANDLERS['read']()", "time.time"),
    ("h.dice.random()", "random.Random.random"),
    ("h.game.dice.random()", "random.Random.random"),
    ("h.game.clock()", "time.time"),
    ("map(h.game.dice.choice, xs)", "random.Random.choice"),
    ("h.CACHE.append(1)", "changing a global collection"),
    ("cache = h.CACHE\ncache.pop()", "changing a global collection"),
    ("h.QUEUE.popleft()", "changing a global collection"),
    ("h.game.log.append(1)", "changing a global collection"),
    ("h.SEEN['a'] += 1", "counting in a global"),
    ("h.TOTALS['a'] += 1", "counting in a global"),
    ("h.game.number += 1", "counting in a global"),
    ("next(h.ticks)", "counting in a global"),
]

RIGHT = [
    "h.sorted_names()",
    "for x in h.ordered(): x",
    "for x in sorted(h.names()): x",
    "'a' in h.names()",
    "h.total()",
    "h.clock.add(1)",
    "h.clock.zone_name",
    "h.clock.zone.read()",
    "h.Clock().zone.current",
    "h.Clock()",
    "h.plain.count()",
    "h.Plain('a').count()",
    "getattr(h.plain, 'name')",
    "getattr(xs, 'time', None)",
    "functools.partial(print, 1)()",
    "dedent('x')",
    "json.loads('1')",
    "Decimal('1').sqrt()",
    "charge(1)",
    "await charge(1)",
    "map(h.clock.add, xs)",
    "sorted(xs, key=h.HANDLERS['add'])",
    "list(map(len, xs))",
    "read.__name__",
    "isinstance(xs, random.Random)",
    "map(time.gmtime, xs)",
    "perdure.task(name='x')(h.ordered)",
    "task(read)",
    "map(perdure.now, xs)",
    "perdure.now(), perdure.random().random(), perdure.uuid4()",
    "rng = perdure.random()\nrng.choice(xs)",
    "rng = random.Random(xs[0])\nmap(rng.choice, xs)",
    "globals()['names']",
    "__import__('json').loads('1')",
    "h.SEEN['a'] = 1",
    "h.SEEN.setdefault('a', 1)",
    "h.SEEN.update(a=1)",
    "cache = []\ncache.append(1)\ncache[0] += 1",
    "def inner():\n    cache.append(1)\ncache = []\ninner()",
    "h.Board().play()",
    "g = h.Board()\ng.log.append(1)\ng.number += 1",
    "list(h.CACHE) + [1]",
]

FLOW = """
import functools, importlib, json, random, sys, time
from decimal import Decimal
from textwrap import dedent
import linted_helpers as h
from linted_helpers import names, now, read
import perdure
from perdure import task

@task(name=__name__)
async def charge(n: int) -> float:
    return time.time()

class Own:
    def read(self): return h.Clock.read_static()

own = Own()

async def flow(xs=()):
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("linted")
    (folder / "linted_helpers.py").write_text(dedent(HELPERS))
    (folder / "linted_deeper.py").write_text(dedent(DEEPER))
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.startswith("linted_")]:
        del sys.modules[name]


def flow_of(folder: Path, statement: str, number: int) -> ModuleType:
    name = f"linted_flow_{number}"
    (folder / f"{name}.py").write_text(FLOW + indent(statement, "    ") + "\n")
    importlib.invalidate_caches()
    return importlib.import_module(name)


@pytest.mark.parametrize(("number", "statement", "what"), [(i, *c) for i, c in enumerate(WRONG)])
def test_indirect_violations_are_found(
    folder: Path, number: int, statement: str, what: str
) -> None:
    assert what in [finding.what for finding in lint(flow_of(folder, statement, number).flow)]


@pytest.mark.parametrize(("number", "statement"), list(enumerate(RIGHT, len(WRONG))))
def test_indirect_deterministic_code_is_accepted(folder: Path, number: int, statement: str) -> None:
    assert lint(flow_of(folder, statement, number).flow) == []
