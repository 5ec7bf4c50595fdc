"""`perdure demo`: kills a worker in the middle of a step; a second worker resumes the run."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import BinaryIO

from rich.console import Console

from perdure.cli import demo_worker
from perdure.cli.demo_progress import RunProgress
from perdure.cli.demo_screen import WIDEST, Screen
from perdure.cli.exit_codes import TERMINATED
from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from perdure.store.store import Store

_POLL_S = 0.05
_BEFORE_KILL_S = 1.2
"""How long the step is shown running before its worker is killed."""

_TIMEOUT_S = 60.0
_LOG = "worker.log"


class DemoWorkerFailed(Exception):
    """A worker ended by itself or timed out. The message is the worker's output."""


def demo(*, keep: Path | None = None, dashboard: bool = False, port: int = 8377) -> int:
    """Kill a worker in the middle of a step and watch its run resume.

    Takes about eight seconds and leaves nothing behind.

    Parameters
    ----------
    keep
        A folder in which the store stays, in place of that of an earlier demo.
    dashboard
        Instead open a shop in which runs start all the time, and the dashboard that shows them, until Ctrl-C.
    port
        The port of the dashboard; 0 chooses a free one.
    """
    console = Console(highlight=False)
    console = Console(highlight=False, width=min(console.width, WIDEST))
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    with TemporaryDirectory(prefix="perdure-demo-") as temporary:
        folder = Path(temporary) if keep is None else _emptied(keep)
        if dashboard:
            return _open_shop(folder, port, console)
        try:
            code = asyncio.run(_run_demo(Screen(console), folder))
            _say_how_to_look(console, keep)
            return code
        except asyncio.CancelledError:
            return TERMINATED
        except DemoWorkerFailed as failure:
            console.print(f"the demo's worker failed:\n{failure}", style="bold red", markup=False)
            return 1


def _emptied(folder: Path) -> Path:
    """The folder, without what an earlier demo left there."""
    folder.mkdir(parents=True, exist_ok=True)
    database = demo_worker.DATABASE
    for name in (database, f"{database}-wal", f"{database}-shm", demo_worker.EFFECTS, _LOG):
        (folder / name).unlink(missing_ok=True)
    return folder


def _say_how_to_look(console: Console, kept: Path | None) -> None:
    said = "perdure demo --keep FOLDER keeps the store, to see its run in the dashboard"
    if kept is not None:
        # As it was called: a checkout has the command in its own environment.
        called = "perdure" if which("perdure") == sys.argv[0] else sys.argv[0]
        url = f"sqlite:///{kept / demo_worker.DATABASE}"
        said = f"See its run in the dashboard: {called} serve --store {url}"
    console.print(f"\n  {said}", soft_wrap=True)


def _open_shop(folder: Path, port: int, console: Console) -> int:
    from perdure.cli.demo_dashboard import dashboard_demo  # noqa: PLC0415 - needs Starlette

    asyncio.run(dashboard_demo(folder, port, console))
    return 0


async def _run_demo(screen: Screen, folder: Path) -> int:
    demo_task = asyncio.current_task()
    assert demo_task is not None  # noqa: S101 - for the type checker
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, demo_task.cancel)
    # This process only reads the store; only the workers open engines.
    store = await open_store(f"sqlite:///{folder / demo_worker.DATABASE}")
    try:
        return await Demo(screen, store, folder).run()
    finally:
        await store.close()


class Demo:
    """The stages of the demo, from the first worker to the audit of the books."""

    def __init__(self, screen: Screen, store: Store, folder: Path) -> None:
        self._screen = screen
        self._store = store
        self._folder = folder
        self._progress = RunProgress()

    async def run(self) -> int:
        screen, progress = self._screen, self._progress
        screen.head(
            "Demo: kill -9 a worker in the middle of a step; another worker resumes the run"
        )
        screen.say("Both workers use the same SQLite file in a temporary folder.")
        await self._first_worker()
        killed_at = progress.seq
        await self._second_worker()

        screen.head("3. The journal: each entry and what it posted to its step's account")
        screen.journal(progress, killed_at)
        screen.head("4. The ledger: each account and the meaning of its digits")
        screen.ledger(progress)
        screen.head("5. How often each task ran")
        screen.counts(progress, _effects(self._folder))
        screen.say("Finished steps did not run again. The interrupted step did, and is marked.")
        screen.head("6. The books: all accounts recomputed from the journal")
        audited, verified = await audit_store(self._store), await verify_store(self._store)
        screen.report("audit", audited)
        screen.report("verify", verified)
        return 0 if audited.is_clean and verified.is_clean else 1

    async def _first_worker(self) -> None:
        screen, task = self._screen, demo_worker.pack.name
        async with self._worker() as worker:
            screen.head(f"1. A worker starts order {demo_worker.ORDER} (pid {worker.pid})")
            with screen.following(self._progress):
                async with asyncio.timeout(_TIMEOUT_S):
                    while not self._has_started(task):
                        await self._poll(worker)
                await asyncio.sleep(_BEFORE_KILL_S)
                os.kill(worker.pid, signal.SIGKILL)
                code = await worker.wait()
                await self._poll()
        screen.say(
            f"[bold red]kill -9 {worker.pid}[/bold red] in the middle of {task!r}: "
            f"the worker is dead (exit code {code})."
        )

    async def _second_worker(self) -> None:
        screen, progress = self._screen, self._progress
        clock, killed_at, resumed_s = asyncio.get_running_loop().time, progress.seq, 0.0
        started_at = clock()
        async with self._worker() as worker:
            screen.head(f"2. Another worker opens the same file (pid {worker.pid})")
            with screen.following(progress):
                async with asyncio.timeout(_TIMEOUT_S):
                    while not progress.is_over:
                        await self._poll(worker)
                        if not resumed_s and progress.seq > killed_at:
                            resumed_s = clock() - started_at
                await worker.wait()
        screen.say(
            f"[bold green]done[/bold green]: the worker resumed the run {resumed_s:.1f} s after its start."
        )

    def _has_started(self, task: str) -> bool:
        """Whether both the journal and the task's own effect show that the task is running."""
        step = self._progress.running(task)
        return step is not None and step.id in _effects(self._folder)

    async def _poll(self, worker: asyncio.subprocess.Process | None = None) -> None:
        """Shows new journal entries. Raises if `worker` has ended before the run."""
        progress = self._progress
        run = await self._store.run_by_key("", demo_worker.checkout.name, demo_worker.KEY)
        if run is not None:
            entries = await self._store.entries(run.run_id, progress.seq, run.seq)
            lines = progress.add(entries)
            if lines:
                self._screen.show(progress, lines)
        if worker is not None:
            if worker.returncode is not None and not progress.is_over:
                raise DemoWorkerFailed(_worker_output(self._folder))
            await asyncio.sleep(_POLL_S)

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """A worker process; killed at the end of the block if it still runs."""
        arguments = ["-m", demo_worker.__name__, str(self._folder)]
        with _open_log(self._folder) as log:
            worker = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C reaches only this process, which then kills its worker
            )
        try:
            yield worker
        except TimeoutError:
            raise DemoWorkerFailed(_worker_output(self._folder)) from None
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()


def _open_log(folder: Path) -> BinaryIO:
    return (folder / _LOG).open("ab")


def _worker_output(folder: Path) -> str:
    """The output of the workers; they write only on errors."""
    return (folder / _LOG).read_text(errors="replace").strip() or "it wrote no output"


def _effects(folder: Path) -> dict[str, list[str]]:
    """By step, the idempotency keys of its attempts, from the file that the tasks write outside the store."""
    keys: dict[str, list[str]] = {}
    effects = folder / demo_worker.EFFECTS
    if effects.exists():
        for line in effects.read_text().splitlines():
            step, key = line.split()
            keys.setdefault(step, []).append(key)
    return keys
