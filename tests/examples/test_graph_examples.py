"""The graphs in `examples/` do what they say on each database, and leave clean books."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.chains import assert_clean
from tests.paths import ROOT

EXAMPLES = ROOT / "examples"
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)

EXPECTED = {
    "graph_order.py": """\
A1: shipped as parcel-A1
A2: refused by the manager, refunded
B1: nobody approved it in time, refunded
B2: no carrier took it (Atlantis is not on the map), refunded
Ada: 2 orders are through
Bob: 2 orders are through
money kept: A1 (25000 cents)
""",
    "graph_map_reduce.py": """\
process 1 counts 'the whale is white'
process 1 counts 'the ship is lost'
process 1 counts 'the captain and the whale'
process 1 was killed (exit -9)
process 2 counts 'call me Ishmael'
{'is': 2, 'the': 4, 'whale': 2}
""",
    "graph_retry_loop.py": """\
P1 by river, turn 3
ship,0,0,0
ship,0,1,0
ship,0,2,0
given up: full rail has no room
""",
    "graph_saga.py": """\
flight in Lisbon, hotel in Lisbon, car in Lisbon
cancels the hotel in Cannes
cancels the flight in Cannes
no trip: no car is left in Cannes
booked: flight in Lisbon, hotel in Lisbon, car in Lisbon
""",
    "graph_fan_in.py": """\
Food of Love: 1200 cents, 4 left, 0 reviews
asked at once: price reviews stock
""",
    "graph_and_workflow.py": """\
hired: Ada
alone: {'hired': False, 'marks': 3}
""",
}

LOGGED = {
    "graph_order.py": {
        "attempt 1 of task 'ship' failed: ConnectionError": 1,
        "attempt 2 of task 'ship' failed: ConnectionError": 1,
        "attempt 1 of task 'ship' failed: LookupError": 1,
        "attempt 2 of task 'ship' failed: LookupError": 1,
        "attempt 3 of task 'ship' failed: LookupError": 1,
        "attempt 4 of task 'ship' failed: LookupError": 1,
        "attempt 5 of task 'ship' failed: LookupError": 1,
    },
    "graph_map_reduce.py": {
        "attempt 1 of task 'count' had started when its host ended": 1,
        "host is dead": 1,
    },
    "graph_retry_loop.py": {
        "attempt 1 of task 'ship' failed: graph_retry_loop.CarrierFull": 4,
        "run of 'find_carrier' failed: graph_retry_loop.CarrierFull": 1,
    },
    "graph_saga.py": {"attempt 1 of task 'book' failed: graph_saga.SoldOut": 1},
    "graph_fan_in.py": {"attempt 1 of task 'reviews' failed: ConnectionError": 1},
    "graph_and_workflow.py": {},
}
"""The warnings that each logs to standard error, without ids and details, and how often."""

RUNS = {
    "graph_order.py": 4,
    "graph_map_reduce.py": 1,
    "graph_retry_loop.py": 2,
    "graph_saga.py": 2,
    "graph_fan_in.py": 1,
    "graph_and_workflow.py": 7,
}
"""How many each starts, children included."""


@pytest.fixture(params=["sqlite", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("emptied_postgres")
        return found
    return f"sqlite:///{tmp_path}/example.db"


def run_python(*arguments: str) -> tuple[str, Counter[str]]:
    """What the program printed, and the warnings that it logged."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=EXAMPLES,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, Counter(map(abridged, without_tracebacks(done.stderr)))


def without_tracebacks(text: str) -> list[str]:
    return re.sub(r"^Traceback .*\n(?:[ \t].*\n)+.*\n", "", text, flags=re.MULTILINE).splitlines()


def abridged(line: str) -> str:
    """`attempt 1 of task 'ship' (step ...) failed: LookupError: Atlantis` up to the type of the error."""
    without_ids = re.sub(r" \(.*?\)| [rh]_\w+", "", line)
    return ":".join(without_ids.split(":")[: 2 if " failed" in line else 1])


@pytest.mark.parametrize("name", EXPECTED)
async def test_an_example_does_what_it_says(name: str, url: str) -> None:
    module = name.removesuffix(".py")
    program = f"import asyncio, {module}; asyncio.run({module}.main({url!r}))"
    assert run_python("-c", program) == (EXPECTED[name], LOGGED[name])
    await assert_clean(url, RUNS[name])


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_as_its_first_lines_say(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert re.findall(r"^    python (.*)$", text, re.MULTILINE) == [f"examples/{name}"]
    assert run_python(name) == (EXPECTED[name], LOGGED[name])


def test_every_graph_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("graph_*.py")} == set(EXPECTED)
