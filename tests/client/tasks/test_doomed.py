"""A task that kills its own process is not retried forever."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.core.journal import events as e
from perdure.core.replay.doubt import MAX_DOUBTS
from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from tests.client.tasks.doomed import BYSTANDERS, STEPS
from tests.paths import ROOT

KILLED = -9


def live(url: str, log: Path, name: str) -> tuple[int, list[str]]:
    """One life of the process: how it ended, and what it printed."""
    command = [sys.executable, "-m", "tests.client.tasks.doomed", url, str(log), name]
    done = subprocess.run(
        command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True, timeout=60
    )
    return done.returncode, done.stdout.splitlines()


async def labels_of_doubts(url: str) -> list[str]:
    """The doubts in the journal of the run with the killing task. The books of all runs must be sound."""
    store = await open_store(url)
    try:
        for report in (await audit_store(store), await verify_store(store)):
            assert report.findings == []
            assert report.runs == BYSTANDERS + 1
        return [
            entry.event.label
            async for books in store.books()
            for entry in books.entries
            if isinstance(books.entries[0].event, e.ExecutionStarted)
            if books.entries[0].event.idempotency_key == "doomed"
            if isinstance(entry.event, e.Posted)
        ]
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("shared_url", "name"),
    [
        ("sqlite", "doomed.failing"),
        ("sqlite", "doomed.catching_there"),
        pytest.param("postgres", "doomed.catching", marks=pytest.mark.postgres),
        pytest.param("sqlite", "doomed.catching", marks=pytest.mark.deep),
        pytest.param("postgres", "doomed.failing", marks=(pytest.mark.postgres, pytest.mark.deep)),
        pytest.param(
            "postgres", "doomed.catching_there", marks=(pytest.mark.postgres, pytest.mark.deep)
        ),
    ],
    indirect=["shared_url"],
)
def test_a_task_that_kills_its_process_is_failed_and_the_process_lives(
    shared_url: str, tmp_path: Path, name: str
) -> None:
    log = tmp_path / "log"
    lives = [live(shared_url, log, name) for _ in range(MAX_DOUBTS + 2)]
    assert [code for code, _ in lives] == [KILLED] * (MAX_DOUBTS + 1) + [0]
    keys = log.read_text().split()
    assert len(keys) == MAX_DOUBTS + 1
    assert len(set(keys)) == 1
    ended, others = lives[-1][1]
    assert f"was under way {MAX_DOUBTS + 1} times when its host died" in ended
    assert ended.startswith("the run failed") is (name == "doomed.failing")
    assert others == str([number + STEPS for number in range(BYSTANDERS)])
    labels = asyncio.run(labels_of_doubts(shared_url))
    retried = [] if name == "doomed.catching_there" else ["in doubt: retry"] * MAX_DOUBTS
    assert labels == [*retried, "in doubt: fail"]
