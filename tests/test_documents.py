"""Runs the programs in the documents and the examples, and compares what they print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import documents, name_of
from tests.paths import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)


def run_program(program: Path, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def code_of(document: Path) -> str:
    """The Python blocks of a document as one program that keeps the document's line numbers."""
    text = document.read_text()
    lines = [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "document", [path for path in documents() if BLOCK.search(path.read_text())], ids=name_of
)
def test_the_program_in_a_document_prints_what_its_comments_say(
    document: Path, tmp_path: Path
) -> None:
    code = code_of(document)
    # A file named like a module of the standard library would hide that module.
    is_taken = document.stem in sys.stdlib_module_names
    program = tmp_path / (f"{document.stem}_page.py" if is_taken else f"{document.stem}.py")
    program.write_text(code)
    assert run_program(program, tmp_path).splitlines() == PRINTED.findall(code)


def test_the_books_survive_a_kill_and_name_what_was_tampered_with(tmp_path: Path) -> None:
    printed = run_program(ROOT / "examples/books.py", tmp_path)
    assert "was killed (exit -9)" in printed
    assert "charge is done, ship is open" in printed
    assert printed.count(": clean (runs 1, entries 12, accounts 2)") == 2
    assert re.search(r"balance_differs: run r_\w+ entry 4: step:root.0", printed)
    assert re.search(r"entry_altered: run r_\w+ entry 1", printed)


def test_the_checkout_ships_what_is_approved_and_refunds_what_is_not(tmp_path: Path) -> None:
    printed = run_program(ROOT / "examples/checkout.py", tmp_path)
    assert printed.splitlines() == [
        "order 1: shipped as parcel-1",
        "order 2: refused by the manager, refunded",
        "order 3: nobody approved it in time, refunded",
        "order 4: no carrier took it, refunded",
        "money kept: order 1",
    ]


def test_every_example_is_run_here_or_with_the_graphs() -> None:
    names = {path.name for path in (ROOT / "examples").iterdir() if path.is_file()}
    here = {name for name in names if not name.startswith("graph_")}
    assert here == {"books.py", "checkout.py"}
