"""`perdure graph`: what it prints and refuses, and what is in the store afterwards."""

import asyncio
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure import Engine
from perdure.cli.app import run_command
from perdure.cli.exit_codes import FAILED, REFUSED
from perdure.store.opening import open_store
from tests.cli.test_demo import COMMAND

APP = "tests.cli.graph_app"

GREET = """\
graph: greet
version: "{version}"
input: {{who: str}}
activities:
  ready: {{hook: ready, key: who, output: {{}}}}
  out: {{output: "'Hello ' + who"}}
transitions:
  - ready -> out
"""

WRONG_GRAPH = """\
graph: greet
version: "1"
input: {}
activities:
  out: {output: "nobody + 1"}
  lost: {sleep: "nothing"}
"""


class Said(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def graph(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> Said:
        code = run_command(["graph", *map(str, arguments)])
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def greet(tmp_path: Path) -> Path:
    path = tmp_path / "greet.yaml"
    path.write_text(GREET.format(version=1))
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that an engine made."""
    url = f"sqlite:///{tmp_path}/orders.db"
    if request.param == "postgres":
        url = request.getfixturevalue("emptied_postgres")

    async def make() -> None:
        await (await open_store(url)).close()

    asyncio.run(make())
    return url


def test_check_prints_valid_graphs(graph: Command, greet: Path) -> None:
    said = graph("check", greet, f"{APP}:program", f"{APP}:model")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        f"{greet}: greet version 1: 3 nodes, no problems",
        f"{APP}:program: coded version 1: 2 nodes, no problems",
        f"{APP}:model: coded version 1: 2 nodes, no problems",
    ]


def test_check_prints_every_problem_with_its_position(
    graph: Command, greet: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(WRONG_GRAPH)
    said = graph("check", wrong, greet, f"{APP}:wrong")
    assert said.code == FAILED
    lines = said.err.splitlines()
    assert any(re.match(rf"{re.escape(str(wrong))}:5:\d+: .*nobody", line) for line in lines)
    assert any(re.match(rf"{re.escape(str(wrong))}:6:\d+: .*nothing", line) for line in lines)
    assert any(line.startswith(f"{APP}:wrong: out.value: ") for line in lines)
    assert "greet version 1: 3 nodes, no problems" in said.out


def test_check_continues_after_an_unreadable_source(
    graph: Command, greet: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(WRONG_GRAPH)
    said = graph("check", "nowhere.yaml", wrong, "nothing", greet)
    assert said.code == REFUSED
    assert said.out == f"{greet}: greet version 1: 3 nodes, no problems\n"
    starts = (
        "perdure graph: nowhere.yaml can't",
        f"{wrong}:5:",
        f"{wrong}:6:",
        "perdure graph: 'no",
    )
    for line, start in zip(said.err.splitlines(), starts, strict=True):
        assert line.startswith(start)


def test_check_without_sources_is_refused(graph: Command) -> None:
    said = graph("check")
    assert (said.code, said.out) == (REFUSED, "")
    assert "there is nothing to check: pass a YAML file, or a module" in said.err


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("nowhere.yaml", r"nowhere\.yaml can't be read \(No such file"),
        ("nothing", "'nothing' is not the name of a graph"),
        ("nowhere.app:graph", "there is no module 'nowhere'"),
        (f"{APP}:motor", "has no 'motor'"),
        (f"{APP}:a_number", "a_number is a builtins.int"),
    ],
)
@pytest.mark.parametrize("command", ["check", "draw"])
def test_source_without_a_graph_is_refused(
    graph: Command, command: str, source: str, text: str
) -> None:
    said = graph(command, source)
    assert said.code == REFUSED
    assert re.search(text, said.err), said.err


REFUSED_MODULES = {
    "refused_function": (
        "from perdure import graph\n\n\n@graph\nasync def order(n: int) -> int:\n"
        "    seen = {n}\n    return len(seen)\n",
        "6:12: a set can't be used in an expression; write a list: [...]",
    ),
    "refused_builder": (
        "from perdure import GraphBuilder\n\nbuilder = GraphBuilder('order', input={'n': int})\n"
        "builder.output('out', 'nn')\norder = builder.build()\n",
        "5:1: out.value: there is no variable 'nn'; did you mean 'n'?",
    ),
}


@pytest.mark.parametrize("module", REFUSED_MODULES)
@pytest.mark.parametrize("command", ["check", "draw", "deploy"])
def test_invalid_graph_in_a_module_is_reported_like_one_in_a_file(
    graph: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, module: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / f"{module}.py"
    code, problem = REFUSED_MODULES[module]
    path.write_text(code)
    store = ("--store", f"sqlite:///{tmp_path}/orders.db") if command == "deploy" else ()
    said = graph(command, f"{module}:order", *store)
    assert said == Said(FAILED, "", f"{path}:{problem}\n")


def test_failing_module_is_reported_with_its_traceback(
    graph: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "graphs_that_break.py").write_text("1 / 0\n")
    said = graph("check", "graphs_that_break:order")
    assert said.code == REFUSED
    assert 'graphs_that_break.py", line 1' in said.err
    assert said.err.splitlines()[-1].endswith("division by zero: see the traceback")


def test_invalid_store_is_reported_without_a_traceback(graph: Command, tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("This is no database. " * 100)
    said = graph("list", "--store", f"sqlite:///{text}")
    assert (said.code, said.out) == (REFUSED, "")
    (line,) = said.err.splitlines()
    assert re.match(r"perdure graph: .*text.db is not a SQLite database: ", line)


def test_a_graph_is_deployed_activated_and_listed(
    graph: Command, greet: Path, store_url: str
) -> None:
    store = ("--store", store_url)
    said = graph("list", *store)
    assert (said.code, said.out.startswith("no graphs are deployed")) == (0, True)
    said = graph("deploy", greet, *store)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(
        "greet version 1: deployed; activate it with: perdure graph activate"
    )
    assert graph("deploy", greet, *store) == said
    assert graph("activate", "greet", "1", *store) == Said(0, "greet version 1: active\n", "")
    greet.write_text(GREET.format(version=2))
    assert graph("deploy", greet, *store).code == 0
    said = graph("list", *store)
    rows = [line.split() for line in said.out.splitlines()]
    assert [row[:4] for row in rows[1:]] == [
        ["greet", "1", "active", "0"],
        ["greet", "2", "deployed", "0"],
    ]

    async def run() -> object:
        async with Engine(store_url) as engine:
            run = await engine.start_graph("greet", {"who": "Ada"})
            await engine.send("ready", "Ada")
            return await run.result(60)

    assert asyncio.run(run()) == "Hello Ada"


def test_refused_deployment_changes_nothing(graph: Command, greet: Path, store_url: str) -> None:
    store = ("--store", store_url)
    graph("deploy", greet, *store)
    before = graph("list", *store)
    greet.write_text(GREET.format(version=1).replace("Hello", "Bye"))
    said = graph("deploy", greet, *store)
    assert said.code == REFUSED
    assert "version '1' of program 'greet' was deployed" in said.err
    said = graph("activate", "greet", "9", *store)
    assert said.code == REFUSED
    assert "has no version '9' (deployed: '1')" in said.err
    greet.write_text(WRONG_GRAPH)
    said = graph("deploy", greet, *store)
    assert said.code == FAILED
    assert f"{greet}:5:" in said.err
    greet.write_text(
        GREET.format(version=5) + "---\n" + GREET.format(version="").replace("greet", "other")
    )
    said = graph("deploy", greet, *store)
    assert said.code == REFUSED
    assert "graph 'other' has no version" in said.err
    other = GREET.format(version=5).replace("greet", "other")
    taken = GREET.format(version=1).replace("Hello", "Bye")
    greet.write_text(f"{other}---\n{taken}")
    said = graph("deploy", greet, *store)
    assert (said.code, said.out) == (REFUSED, "")
    assert "version '1' of program 'greet' was deployed" in said.err
    assert graph("list", *store) == before


def test_new_graphs_of_a_file_are_deployed_beside_existing_ones(
    graph: Command, greet: Path, store_url: str
) -> None:
    store = ("--store", store_url)
    graph("deploy", greet, *store)
    other = GREET.format(version=5).replace("greet", "other")
    spelled = GREET.format(version=1).replace("'Hello ' + who", "'Hello '  +  who")
    assert spelled != GREET.format(version=1)
    greet.write_text(f"{other}---\n{spelled}")
    said = graph("deploy", greet, *store)
    assert (said.code, said.err) == (0, "")
    reported = [line.partition(";")[0] for line in said.out.splitlines()]
    assert reported == ["other version 5: deployed", "greet version 1: deployed"]


@pytest.mark.parametrize(
    "arguments", [("list",), ("activate", "greet", "1"), ("deploy", APP + ":model")]
)
def test_missing_store_is_not_created(
    graph: Command, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    said = graph(*arguments, "--store", f"sqlite:///{tmp_path}/nowhere.db")
    assert said.code == REFUSED
    assert "nowhere.db" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_graph_is_drawn(graph: Command, greet: Path, tmp_path: Path) -> None:
    said = graph("draw", greet)
    assert (said.code, said.err) == (0, "")
    assert "hook ready, key who" in said.out
    assert graph("draw", greet, "--as", "mermaid").out.startswith("flowchart")
    picture = tmp_path / "greet.svg"
    assert graph("draw", f"{APP}:program", "--as", "svg", "-o", picture) == Said(0, "", "")
    assert picture.read_text().startswith("<svg")
    said = graph("draw", greet, "-o", tmp_path / "nowhere" / "greet.txt")
    assert said.code == REFUSED
    assert "can't be written" in said.err
    assert graph("draw", f"{APP}:wrong").code == FAILED


def test_graphs_of_one_file_may_call_each_other(graph: Command, tmp_path: Path) -> None:
    both = tmp_path / "both.yaml"
    both.write_text(
        'graph: outer\nactivities:\n  inner: {call: inner, input: {n: "1"}, output: {m: result}}\n'
        "  out: {output: m}\ntransitions:\n  - inner -> out\n"
        "---\ngraph: inner\ninput: {n: int}\nactivities:\n  out: {output: n + 1}\n"
    )
    said = graph("check", both)
    assert (said.code, said.err) == (0, "")
    assert re.search(r"both.yaml: outer: [5-9] nodes, no problems", said.out), said.out


def test_graphs_are_checked_with_their_calls_expanded(graph: Command, tmp_path: Path) -> None:
    both = tmp_path / "both.yaml"
    both.write_text(
        "graph: outer\nactivities:\n  c: {call: inner}\n  out: {output: c}\ntransitions:\n  - c -> out\n"
        "---\ngraph: inner\nactivities:\n  way: branch\n  out: {output: 1}\n"
        "transitions:\n  - {from: way, to: out, when: job}\n"
    )
    said = graph("check", both)
    assert said.code == FAILED
    assert "c.graph: the graph 'inner' may end without an output" in said.out + said.err


def test_drawing_a_file_with_two_graphs_is_refused(graph: Command, greet: Path) -> None:
    greet.write_text(GREET.format(version=1) + "---\n" + GREET.format(version=2))
    said = graph("draw", greet)
    assert said.code == REFUSED
    assert "contains 2 graphs" in said.err


def test_command_imports_modules_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(
        "import perdure\n"
        "builder = perdure.GraphBuilder('order', version='1')\n"
        "builder.output('out', '1')\n"
        "order = builder.build()\n"
    )
    done = subprocess.run(
        [*COMMAND, "graph", "check", "orders:order"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "orders:order: order version 1: 2 nodes, no problems\n"
