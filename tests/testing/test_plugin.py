"""The pytest fixture, used as in a user's project."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure import task, workflow
from perdure.testing.explorer import ScheduleFailed
from perdure.testing.plugin import CrashExplorer
from tests.paths import ROOT

EXPLORED: list[int] = []


@task
async def remember(n: int) -> int:
    EXPLORED.append(n)
    return n


@workflow
async def notes() -> int:
    return await remember(1) + await remember(2)


@workflow
async def forgets() -> int:
    """Keeps state in memory that belongs in the journal."""
    EXPLORED.clear()
    await remember(1)
    await perdure.sleep(5)
    return len(EXPLORED)


async def test_fixture_explores_a_workflow(crash_explorer: CrashExplorer) -> None:
    explored = await crash_explorer.explore(notes)
    assert {
        "commit 1: crash before",
        "commit 2: crash after",
        "wait 1: is evicted",
    } <= explored.faults


async def test_fixture_finds_a_workflow_that_does_not_survive(
    crash_explorer: CrashExplorer,
) -> None:
    with pytest.raises(ScheduleFailed, match="without faults it ends completed 1"):
        await crash_explorer.explore(forgets)


def test_examples_of_the_guide_run_in_a_project_of_its_own(tmp_path: Path) -> None:
    guide = ROOT / "docs/how-to/testing.md"
    examples = re.findall(r"^```python\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "test_buy.py").write_text("\n\n".join(examples))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_buy.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"{len(examples)} passed" in done.stdout, done.stdout + done.stderr
