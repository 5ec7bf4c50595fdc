"""Tests and `perdure.testing` use no private attributes of engines and hosts; `perdure.testing.probe` alone does."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

TESTS = ROOT / "tests"
TESTING = ROOT / "src" / "perdure" / "testing"

OWNERS = [ROOT / "src" / "perdure" / room for room in ("client", "host")]
"""Where the classes are whose private attributes tests don't use."""

LOWER_ROOMS = {"authoring", "core", "operations", "store"}
"""Tests of the layers below the host. Their classes have private attributes with the same names."""

SEEDED_BUGS = {
    "engine/graph/seeded_bugs.py",
    "engine/workflow/act_bugs.py",
    "engine/workflow/asking_bugs.py",
    "engine/workflow/doubts.py",
    "engine/workflow/front_end_bugs.py",
    "engine/workflow/lost_rows.py",
    "engine/workflow/message_bugs.py",
    "engine/workflow/seeded_bugs.py",
}
"""Deliberate bugs: each replaces a private method by one with a mistake that the explorer must find."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.AST) -> set[str]:
    """The private attributes and methods of the classes in `tree`."""
    found = set()
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in ast.walk(owner):
            if isinstance(node, Function):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return set(filter(is_private, found))


def names_used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The attributes that `tree` takes from an object other than `self`, or names in a patch, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(
                value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name("super"))
            ):
                continue
            case ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "delattr") | ast.Name("setattr" | "getattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name
            case _:
                pass


def checked_files() -> list[Path]:
    tests = [
        path
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).parts[0] not in LOWER_ROOMS
        and path.relative_to(TESTS).as_posix() not in SEEDED_BUGS
    ]
    return [*tests, *sorted(set(TESTING.rglob("*.py")) - {TESTING / "probe.py"})]


@pytest.fixture(scope="module")
def forbidden() -> set[str]:
    return {
        name
        for room in OWNERS
        for path in room.rglob("*.py")
        for name in private_names(ast.parse(path.read_text()))
    }


def test_tests_use_no_private_attribute_of_an_engine_or_host(forbidden: set[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in checked_files()
        for line, name in names_used(ast.parse(path.read_text()))
        if name in forbidden
    ]
    assert found == [], "use perdure.testing.probe.Probe, or add what the test needs to it"


@pytest.mark.parametrize(
    "code",
    [
        "engine._host.poller.poll()",
        "await engine._abort()",
        "monkeypatch.setattr(poller, '_deliver_due', counted)",
        "(lambda: probe.host.worker._claims)()",
    ],
)
def test_private_access_is_found(code: str, forbidden: set[str]) -> None:
    assert forbidden & {name for _, name in names_used(ast.parse(code))}


@pytest.mark.parametrize("code", ["self._host", "super()._open()", "host.dispatcher.store"])
def test_own_attributes_and_public_names_are_allowed(code: str, forbidden: set[str]) -> None:
    assert not forbidden & {name for _, name in names_used(ast.parse(code))}


def test_files_of_seeded_bugs_exist() -> None:
    assert {name for name in SEEDED_BUGS if not (TESTS / name).exists()} == set()
