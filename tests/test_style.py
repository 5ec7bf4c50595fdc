"""The rules of style that a linter can't state. Each failure names its place."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

SOURCE = ROOT / "src" / "perdure"

MODULE_LINES = 500
FUNCTION_LINES = 70
PARAMETERS = 7

# Names that say nothing: whatever is put there belongs to a noun.
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}

# Written in pieces, so that this file does not break its own rule.
REGISTRIES = ["pypi" + ".org", "python" + "hosted.org", "npm" + "js.org", "yarn" + "pkg.com"]
HOMES = ["/" + "root/", "/" + "home/", "/" + "Users/"]

SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE TABLE)\b")

NOT_OURS = {
    *(".git", ".venv", ".venv-bench", ".hypothesis"),
    *("build", "dist", "node_modules", "__pycache__"),
}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def project_files() -> Iterator[Path]:
    for directory, names, files in os.walk(ROOT):
        names[:] = [n for n in names if n not in NOT_OURS and not n.endswith("_cache")]
        yield from (Path(directory, name) for name in files if not name.endswith((".so", ".pyd")))


def place(path: Path, line: int = 0) -> str:
    return f"{path.relative_to(ROOT)}:{line}" if line else str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [a.arg for a in named if a.arg not in {"self", "cls"}]


def docstrings(tree: ast.AST) -> set[int]:
    """The identities of the constants in `tree` that are docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr):
            found.add(id(node.body[0].value))
    return found


def strings(path: Path) -> Iterator[ast.Constant]:
    """Every string in `path` that the program uses, the pieces of f-strings included."""
    tree = ast.parse(path.read_text())
    prose = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


def test_source_is_found() -> None:
    assert modules()


def test_modules_stay_short() -> None:
    lengths = {place(path): len(path.read_text().splitlines()) for path in modules()}
    assert {path: n for path, n in lengths.items() if n > MODULE_LINES} == {}


def test_functions_fit_a_screen() -> None:
    lengths = {
        f"{place(path, function.lineno)} {function.name}": (function.end_lineno or 0)
        - function.lineno
        + 1
        for path in modules()
        for function in functions(path)
    }
    assert {name: n for name, n in lengths.items() if n > FUNCTION_LINES} == {}


def test_functions_take_few_parameters() -> None:
    counts = {
        f"{place(path, function.lineno)} {function.name}": len(parameters(function))
        for path in modules()
        for function in functions(path)
    }
    assert {name: n for name, n in counts.items() if n > PARAMETERS} == {}


def test_modules_are_named_for_what_they_hold() -> None:
    parts = {part for path in modules() for part in path.relative_to(SOURCE).with_suffix("").parts}
    assert {part for part in parts if part.strip("_") in BANNED_NAMES} == set()


def test_no_second_sqlite_library() -> None:
    found = [
        place(path, line)
        for path in modules()
        for line, name in imports(path)
        if name.split(".")[0] == "sqlite3"
    ]
    assert found == []


def test_sql_lives_in_the_store_only() -> None:
    found = [
        place(path, constant.lineno)
        for path in modules()
        if SOURCE / "store" not in path.parents
        for constant in strings(path)
        if SQL.search(str(constant.value))
    ]
    assert found == []


@pytest.mark.parametrize("banned", [*REGISTRIES, *HOMES])
def test_no_file_names_a_registry_or_a_home_directory(banned: str) -> None:
    needle = banned.encode()
    assert [place(path) for path in project_files() if needle in path.read_bytes()] == []


def test_locked_requirements_carry_hashes_and_no_addresses() -> None:
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    assert [lock.name for lock in locks] == [
        "bench.txt",
        "build.txt",
        "dev.txt",
        "docs.txt",
        "restate.txt",
        "runtime.txt",
    ]
    for lock in locks:
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert not re.search(r"https?:|://|--index|--find-links|file:| @ ", text), lock.name
