"""Several processes with an engine each, as a web server with several workers has: one store, no supervisor."""

import asyncio
import subprocess
import sys

from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from tests.chains import holders
from tests.client.cluster.embedded import OWN, SHARED
from tests.paths import ROOT

PROCESSES = 4


def test_processes_share_a_store_that_none_of_them_made_before(shared_url: str) -> None:
    """They make it at the same time, start runs at the same time, and do each other's queued work."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.client.cluster.embedded", shared_url, str(number)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(1, PROCESSES + 1)
    ]
    said = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * PROCESSES, said
    shared = [each + 3 for each in range(SHARED)]
    for number, (results, complaints) in enumerate(said, start=1):
        own = [number * 1000 + each + 3 for each in range(OWN)]
        assert [int(result) for result in results.split()] == own + shared
        assert complaints == ""
    asyncio.run(assert_sound(shared_url))


async def assert_sound(url: str) -> None:
    store = await open_store(url)
    try:
        for report in (await audit_store(store), await verify_store(store)):
            assert report.is_clean, str(report)
            assert report.runs == PROCESSES * OWN + SHARED
        assert await holders(store) == frozenset()
    finally:
        await store.close()
