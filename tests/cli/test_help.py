"""`perdure --help` imports little: its time is that of importing modules, which the test counts."""

import subprocess
import sys

import pytest

HEAVY = ("apsw", "asyncio", "msgspec", "perdure.public", "perdure.store", "perdure.core")
MOST_OURS = 6
"""Modules of Perdure: the package, the front door of the command line, its table and its exit codes."""


@pytest.mark.parametrize("arguments", [["--help"], ["runs", "--help"], ["--version"]])
def test_help_imports_neither_engine_nor_store(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from perdure.cli.app import run_command\n"
        f"run_command({arguments!r})\n"
        "print(*sys.modules, sep=' ', file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    modules = set(done.stderr.split())
    assert not modules.intersection(HEAVY)
    assert len({name for name in modules if name.partition(".")[0] == "perdure"}) <= MOST_OURS


def test_name_that_is_not_public_is_no_attribute() -> None:
    program = "import perdure; perdure.nothing"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert "module 'perdure' has no attribute 'nothing'" in done.stderr
