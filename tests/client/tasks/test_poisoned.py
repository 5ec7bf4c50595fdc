"""A task kills its own process again and again while other tasks run: only the one that kills fails."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.core.replay.doubt import MAX_DOUBTS
from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from tests.client.tasks.poisoned import BYSTANDERS
from tests.paths import ROOT

SEGFAULT = -11


def live(url: str, log: Path, where: str) -> tuple[int, list[str]]:
    """One life of the process: how it ended, and what it printed."""
    command = [sys.executable, "-m", "tests.client.tasks.poisoned", url, str(log), where]
    done = subprocess.run(
        command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True, timeout=60
    )
    return done.returncode, done.stdout.splitlines()


async def assert_sound(url: str) -> None:
    store = await open_store(url)
    try:
        for report in (await audit_store(store), await verify_store(store)):
            assert report.findings == []
            assert report.runs == BYSTANDERS + 1
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("shared_url", "where"),
    [
        ("sqlite", "here"),
        pytest.param("postgres", "there", marks=pytest.mark.postgres),
        pytest.param("sqlite", "there", marks=pytest.mark.deep),
        pytest.param("postgres", "here", marks=(pytest.mark.postgres, pytest.mark.deep)),
    ],
    indirect=["shared_url"],
)
def test_only_the_step_fails_that_kills_its_process(
    shared_url: str, tmp_path: Path, where: str
) -> None:
    log = tmp_path / "log"
    lives = [live(shared_url, log, where) for _ in range(MAX_DOUBTS + 2)]
    assert [code for code, _ in lives] == [SEGFAULT] * (MAX_DOUBTS + 1) + [0]
    doubt, numbers = lives[-1][1]
    assert f"was under way {MAX_DOUBTS + 1} times when its host died" in doubt
    assert numbers == str([*range(BYSTANDERS)])
    begun = log.read_text().splitlines()
    assert begun.count("poison") == MAX_DOUBTS + 1
    asyncio.run(assert_sound(shared_url))
