"""A forked process and a ledger that its parent has open."""

import subprocess
import sys

from tests.paths import ROOT


def test_forked_child_can_not_use_the_parents_ledger(place: dict[str, str]) -> None:
    ((kind, value),) = place.items()
    process = subprocess.run(
        [sys.executable, "-m", "tests.operations.forked", kind, value],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.splitlines() == [
        *["use used-after-fork"] * 11,
        "child 0",
        "parent 7",
        "parent completed",
        "pid True",
        "child 0",
    ]
