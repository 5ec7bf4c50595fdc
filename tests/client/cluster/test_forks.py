"""What a forked process does with an engine that its parent has open."""

import subprocess
import sys

from tests.paths import ROOT


def said(case: str, url: str) -> list[str]:
    process = subprocess.run(
        [sys.executable, "-m", "tests.client.cluster.forked", case, url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout.splitlines()


def test_forked_child_refuses_a_sync_engine_and_leaves_the_parents_alone(shared_url: str) -> None:
    """SQLite can't open a file again that it inherited; a Postgres engine is opened anew."""
    reopened = "used-after-fork" if shared_url.startswith("sqlite") else "not refused: 12"
    assert said("sync", shared_url) == [
        "parent 3",
        *["use used-after-fork"] * 10,
        "use engine-closed",
        "child 0",
        f"reopen {reopened}",
        "child 0",
        "parent 4",
        "publish used-after-fork",
        "child 0",
        "parent done",
        "clean True",
    ]


def test_forked_child_refuses_an_async_engine_and_leaves_the_parents_alone(
    shared_url: str,
) -> None:
    assert said("async", shared_url) == [
        "parent 3",
        *["use used-after-fork"] * 5,
        "parent 4",
        "clean True",
    ]


def test_engine_that_is_opened_after_the_fork_works_in_each_process(shared_url: str) -> None:
    assert said("late", shared_url) == ["worker 3", "child 0"] * 2
