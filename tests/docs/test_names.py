"""Every command and API name that pages and error texts mention exists."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, documents, name_of
from tests.docs.names import unknown_names


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_every_name_that_a_page_mentions_exists(document: Path) -> None:
    assert not unknown_names(document.read_text())


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that are no docstrings: errors, remedies, log lines, help."""
    for node in ast.walk(ast.parse(path.read_text())):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Constant) and isinstance(child.value, str):
                if not isinstance(node, ast.Expr):
                    yield child.lineno, child.value


def test_every_name_that_an_error_mentions_exists() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in (ROOT / "src" / "perdure").rglob("*.py")
        for line, text in texts_of(path)
        if "perdure" in text or "engine." in text or "handle." in text or "Settings(" in text
        for name in unknown_names(text)
    ]
    assert not wrong


@pytest.mark.parametrize(
    "text",
    [
        "see 'perdure unravel r_81'",
        "run `perdure graph destroy`",
        "call perdure.verify_runs(url)",
        "await engine.explain()",
        "await handle.restart()",
        "pass Settings(patience=3)",
    ],
)
def test_a_name_that_does_not_exist_is_found(text: str) -> None:
    assert len(unknown_names(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "from perdure import Engine",
        "`perdure graph check`, `perdure worker module:engine`",
        "await perdure.audit(url), perdure.operations.Ledger, perdure.core.limits",
        "engine.start(call), handle.result(), Settings(concurrency=3)",
        "the logger perdure.host, the table perdure.run, the file perdure.db",
    ],
)
def test_names_that_exist_are_accepted(text: str) -> None:
    assert not unknown_names(text)
