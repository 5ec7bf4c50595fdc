"""`perdure demo`: an order, a worker that is killed in the middle of a step, and one that goes on."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from rich.console import Console

from perdure.cli import demo_worker
from perdure.cli.demo_progress import Progress
from perdure.cli.demo_screen import WIDEST, Screen
from perdure.store.inspection import audit, verify
from perdure.store.opening import open_store
from perdure.store.store import Store

TERMINATED = 143
"""Exit code after SIGTERM, as shells have it."""

_POLL_S = 0.05
_SUSPENSE_S = 1.2
"""How long the doomed step is seen running."""

_PATIENCE_S = 60.0
_LOG = "worker.log"


class WorkerFailed(Exception):
    """A worker ended, or did nothing for too long, and nobody killed it. Holds what it said."""


def demo() -> int:
    """Kill a worker in the middle of a step, and watch its run go on.

    Takes about eight seconds and leaves nothing behind.
    """
    console = Console(highlight=False)
    console = Console(highlight=False, width=min(console.width, WIDEST))
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    with TemporaryDirectory(prefix="perdure-demo-") as folder:
        try:
            return asyncio.run(_tell(Screen(console), Path(folder)))
        except asyncio.CancelledError:
            return TERMINATED
        except WorkerFailed as failure:
            console.print(f"the demo's worker failed:\n{failure}", style="bold red", markup=False)
            return 1


async def _tell(screen: Screen, folder: Path) -> int:
    story = asyncio.current_task()
    assert story is not None  # noqa: S101 - for the type checker
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, story.cancel)
    # The workers alone open engines: this process only reads.
    store = await open_store(f"sqlite:///{folder / demo_worker.DATABASE}")
    try:
        return await Demo(screen, store, folder).tell()
    finally:
        await store.close()


class Demo:
    """The story, from the first worker to the closing of the books."""

    def __init__(self, screen: Screen, store: Store, folder: Path) -> None:
        self._screen = screen
        self._store = store
        self._folder = folder
        self._progress = Progress()

    async def tell(self) -> int:
        screen, progress = self._screen, self._progress
        screen.head("An order, and a worker that does not live to see it shipped")
        screen.say("Two processes, one after the other, on one SQLite file in a temporary folder.")
        await self._first_worker()
        killed_at = progress.seq
        await self._second_worker()

        screen.head("3. The journal, and beside each entry what it posted to the ledger")
        screen.journal(progress, killed_at)
        screen.head("4. The ledger, spelled")
        screen.ledger(progress)
        screen.head("5. What ran how often")
        screen.counts(progress, _begun(self._folder))
        screen.say("What had finished was not done again. What was under way was, and is marked.")
        screen.head("6. The books, recomputed from the first entry to the last")
        audited, verified = await audit(self._store), await verify(self._store)
        screen.report("audit", audited)
        screen.report("verify", verified)
        return 0 if audited.is_clean and verified.is_clean else 1

    async def _first_worker(self) -> None:
        screen, doomed = self._screen, demo_worker.pack.name
        async with self._worker() as worker:
            screen.head(f"1. A worker takes order {demo_worker.ORDER} up (pid {worker.pid})")
            with screen.following(self._progress):
                async with asyncio.timeout(_PATIENCE_S):
                    while not self._is_under_way(doomed):
                        await self._look(worker)
                await asyncio.sleep(_SUSPENSE_S)
                os.kill(worker.pid, signal.SIGKILL)
                code = await worker.wait()
                await self._look()
        screen.say(
            f"[bold red]kill -9 {worker.pid}[/bold red] in the middle of {doomed!r}: "
            f"the worker is gone (exit {code})."
        )

    async def _second_worker(self) -> None:
        screen, progress = self._screen, self._progress
        clock, known, resumed_s = asyncio.get_running_loop().time, progress.seq, 0.0
        begun_at = clock()
        async with self._worker() as worker:
            screen.head(f"2. Another worker starts on the same file (pid {worker.pid})")
            with screen.following(progress):
                async with asyncio.timeout(_PATIENCE_S):
                    while not progress.is_over:
                        await self._look(worker)
                        if not resumed_s and progress.seq > known:
                            resumed_s = clock() - begun_at
                await worker.wait()
        screen.say(
            f"[bold green]done[/bold green], resumed {resumed_s:.1f} s after the start of the "
            "worker."
        )

    def _is_under_way(self, task: str) -> bool:
        """The journal says that it has started, and so does its effect outside the store."""
        step = self._progress.running(task)
        return step is not None and step.id in _begun(self._folder)

    async def _look(self, worker: asyncio.subprocess.Process | None = None) -> None:
        """Show what is new in the journal. Raises if the worker that should write it is gone."""
        progress = self._progress
        run = await self._store.run_by_key("", demo_worker.checkout.name, demo_worker.KEY)
        if run is not None:
            entries = await self._store.entries(run.run_id, progress.seq, run.seq)
            lines = progress.add(entries)
            if lines:
                self._screen.show(progress, lines)
        if worker is not None:
            if worker.returncode is not None and not progress.is_over:
                raise WorkerFailed(_said(self._folder))
            await asyncio.sleep(_POLL_S)

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """A worker process, which does not outlive the block whatever happens in it."""
        arguments = ["-m", demo_worker.__name__, str(self._folder)]
        with _open_log(self._folder) as said:
            worker = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=said,
                stderr=said,
                process_group=0,  # Ctrl-C is for this process, which then ends its worker
            )
        try:
            yield worker
        except TimeoutError:
            raise WorkerFailed(_said(self._folder)) from None
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()


def _open_log(folder: Path) -> BinaryIO:
    return (folder / _LOG).open("ab")


def _said(folder: Path) -> str:
    """What the workers wrote, which is nothing while all is well."""
    return (folder / _LOG).read_text(errors="replace").strip() or "it said nothing"


def _begun(folder: Path) -> dict[str, list[str]]:
    """By step, the keys with which its task has begun: the marks that it left outside the store."""
    marks: dict[str, list[str]] = {}
    effects = folder / demo_worker.EFFECTS
    if effects.exists():
        for line in effects.read_text().splitlines():
            step, key = line.split()
            marks.setdefault(step, []).append(key)
    return marks
