"""`perdure op` on current operations: output, refusals and exit codes."""

import asyncio
import json
import os
import pty
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure.cli.app import run_command
from perdure.cli.exit_codes import FAILED, INTERRUPTED, REFUSED
from perdure.cli.output import span
from perdure.operations import CallCallback, Ledger, LogLevel, Operation
from tests.cli.test_demo import COMMAND
from tests.operations.actor import SHORT
from tests.operations.conftest import place_of

PATIENCE_S = 60
SHORTLY = ("--staleness", str(SHORT.staleness))


class Place(NamedTuple):
    """The ledger, as command-line argument and as arguments of `Ledger`."""

    name: str
    arguments: dict[str, str]

    def ledger(self, name: str) -> Ledger:
        return Ledger(**self.arguments, participant_id=name, settings=SHORT)  # type: ignore[arg-type]


class Said(NamedTuple):
    code: int
    out: str
    err: str


Op = Callable[..., "asyncio.Future[Said]"]


@pytest.fixture(params=["files", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    arguments = place_of(request, tmp_path)
    return Place(next(iter(arguments.values())), arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    path = str(tmp_path / "ledger")
    return Place(path, {"base_path": path})


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """A folder with an unrelated file."""
    (tmp_path / "file").touch()
    return tmp_path


@pytest.fixture
def op(capsys: pytest.CaptureFixture[str]) -> Op:
    """Runs a command in a thread: it has an event loop of its own."""

    async def run(*arguments: str) -> Said:
        code = await asyncio.to_thread(run_command, ["op", *arguments])
        return Said(code, *capsys.readouterr())

    return lambda *arguments: asyncio.ensure_future(run(*arguments))


@pytest.fixture
async def opening() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def pair(place: Place, opening: AsyncExitStack) -> tuple[Operation, Operation]:
    """Two participants, with a call each."""
    first = await opening.enter_async_context(place.ledger("cli"))
    second = await opening.enter_async_context(place.ledger("worker"))
    a = await first.create_operation(description="nightly")
    b = await second.join_operation(a.operation_id)
    await a.start_call(description="all of it")
    await b.start_call(description="compile", fail_on_crash=False)
    return a, b


async def over(ledger: Ledger) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await ledger.operation_ids():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)


async def started(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND, "op", *arguments, stdout=PIPE, stderr=PIPE
    )


async def test_show_draws_participants_calls_and_heartbeats(
    place: Place, op: Op, opening: AsyncExitStack
) -> None:
    a, _ = await pair(place, opening)
    said = await op("show", place.name, a.operation_id, *SHORTLY)
    assert (said.code, said.err) == (0, "")
    assert "\x1b" not in said.out
    pid, age = os.getpid(), r"\d\.\ds ago"
    assert re.fullmatch(
        rf"{re.escape(a.operation_id)}  running  nightly\n"
        rf"started by cli {age}, last heartbeat {age}\n"
        rf"├── cli  pid {pid}  heartbeat {age}\n"
        r"│   └── call_cli_1_\w+  active  for \d\.\ds  all of it\n"
        rf"└── worker  pid {pid}  heartbeat {age}\n"
        r"    └── call_worker_1_\w+  active  for \d\.\ds  crash contained  compile\n",
        said.out,
    )
    said = await op("show", place.name, a.operation_id, "--json")
    shown = json.loads(said.out)
    assert shown["operationState"] == "running"
    assert [frame["participantId"] for frame in shown["stack"]] == ["cli", "worker"]


async def test_list_shows_current_operations_and_with_all_the_backups(
    place: Place, op: Op, opening: AsyncExitStack
) -> None:
    ledger = await opening.enter_async_context(place.ledger("cli"))
    done = await ledger.create_operation(description="yesterday's")
    await done.complete()
    said = await op("list", place.name)
    assert (said.code, said.out.startswith("no current operations in ")) == (0, True)
    assert "--all" in said.out
    under_way = await ledger.create_operation(description="today's")
    said = await op("list", place.name)
    assert said.code == 0
    assert under_way.operation_id in said.out
    assert done.operation_id not in said.out
    said = await op("list", place.name, "--all")
    _, first, second = said.out.splitlines()
    assert re.match(rf"{re.escape(done.operation_id)}  completed, in backups .* yesterday's", first)
    assert re.match(rf"{re.escape(under_way.operation_id)}  running .* today's", second)


async def test_abort_names_the_participants_that_clean_up(
    place: Place, op: Op, opening: AsyncExitStack
) -> None:
    ledger = await opening.enter_async_context(place.ledger("cli"))
    a = await ledger.create_operation()
    cleaned: list[int] = []
    callback: CallCallback[None] = CallCallback(on_cleanup=lambda: cleaned.append(1))
    await a.start_call(callback=callback)
    said = await op("abort", place.name, a.operation_id, "--reason", "wrong input", *SHORTLY)
    assert (said.code, said.err) == (0, "")
    assert "aborted by 'perdure': wrong input\n" in said.out
    # The ledger may have noticed the abort before the command looks who is alive.
    does = "(will clean up|coordinates the clean-up)"
    assert re.search(rf"'cli' \(pid {os.getpid()}\) {does}", said.out)
    assert "perdure op watch " in said.out
    await over(ledger)
    assert cleaned == [1]
    said = await op("abort", place.name, a.operation_id)
    assert (said.code, said.out.splitlines()[-1]) == (0, "The clean-up is done.")


async def test_watch_draws_each_change_and_ends_with_the_operation(
    place: Place, opening: AsyncExitStack
) -> None:
    a, b = await pair(place, opening)
    process = await started("watch", place.name, a.operation_id, *SHORTLY)
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        assert b"running" in await process.stdout.readline()
        await b.abort("enough")
        rest = (await process.stdout.read()).decode()
        assert await process.wait() == FAILED
    assert "\x1b" not in rest
    assert rest.count("running") <= 1
    assert "coordinates the clean-up" in rest
    *_, head, _, why = rest.splitlines()
    assert head == f"{a.operation_id}  failed  nightly"
    assert why == "aborted by 'worker': enough"


async def test_watch_of_a_successful_operation_exits_with_0(
    folder: Place, op: Op, opening: AsyncExitStack
) -> None:
    ledger = await opening.enter_async_context(folder.ledger("cli"))
    a = await ledger.create_operation()
    watching = op("watch", folder.name, a.operation_id)
    await asyncio.sleep(0.5)
    assert not watching.done()
    await a.complete()
    said = await asyncio.wait_for(watching, PATIENCE_S)
    assert (said.code, said.out.splitlines()[-2]) == (0, f"{a.operation_id}  completed")


@pytest.mark.parametrize("command", [["watch"], ["log", "--follow"]])
async def test_following_an_operation_without_backup_reports_its_removal(
    folder: Place, opening: AsyncExitStack, command: list[str]
) -> None:
    ledger = await opening.enter_async_context(folder.ledger("cli"))
    a = await ledger.create_operation()
    process = await started(*command, folder.name, a.operation_id)
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        assert await process.stdout.readline()
        said = asyncio.ensure_future(process.communicate())
        while not said.done():
            # A heartbeat that has read the file before may write it again.
            with suppress(FileNotFoundError):
                os.unlink(f"{folder.name}/{a.operation_id}.operation.json")
            await asyncio.wait([said], timeout=0.05)
        _, complaint = await said
    assert process.returncode == REFUSED
    assert f"{a.operation_id!r} has ended and is no longer in the backups" in complaint.decode()


async def test_watch_in_a_terminal_redraws_until_it_is_interrupted(
    folder: Place, opening: AsyncExitStack
) -> None:
    a, _ = await pair(folder, opening)
    master, terminal = pty.openpty()
    environment = dict(os.environ, TERM="xterm-256color", COLUMNS="100", LINES="40")
    process = await asyncio.create_subprocess_exec(
        *(*COMMAND, "op", "watch", folder.name, a.operation_id),
        stdout=terminal,
        stderr=terminal,
        env=environment,
    )
    os.close(terminal)
    os.set_blocking(master, False)
    drawn = ""
    async with asyncio.timeout(PATIENCE_S):
        while drawn.count("call_worker_1") < 3:
            await asyncio.sleep(0.05)
            drawn += _read(master)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == INTERRUPTED
    drawn += _read(master)
    os.close(master)
    assert "\x1b[2K" in drawn
    assert drawn.endswith("\x1b[?25h"), "the cursor is back"
    assert "Traceback" not in drawn


def _read(master: int) -> str:
    try:
        return os.read(master, 1 << 20).decode()
    except (BlockingIOError, OSError):
        return ""


async def test_log_follows_to_the_end(place: Place, op: Op, opening: AsyncExitStack) -> None:
    ledger = await opening.enter_async_context(place.ledger("cli"))
    a = await ledger.create_operation()
    await a.log("for people")
    await a.log("for programmers", LogLevel.DEBUG)
    said = await op("log", place.name, a.operation_id)
    assert [line.split()[2] for line in said.out.splitlines()] == ["OPERATION_CREATED", "[cli]"]
    said = await op("log", place.name, a.operation_id, "--debug")
    assert said.out.splitlines()[2].endswith("DEBUG   [cli] for programmers")
    following = op("log", place.name, a.operation_id, "--follow")
    await asyncio.sleep(0.5)
    assert not following.done()
    await a.log("later")
    await a.complete()
    said = await asyncio.wait_for(following, PATIENCE_S)
    assert said.code == 0
    assert [line.split()[2:] for line in said.out.splitlines()] == [
        ["OPERATION_CREATED", "participant=cli", f"pid={os.getpid()}"],
        ["[cli]", "for", "people"],
        ["[cli]", "later"],
        ["OPERATION_COMPLETED", "participant=cli", f"pid={os.getpid()}"],
    ]


async def test_operation_without_live_participants_is_recovered(place: Place, op: Op) -> None:
    async with place.ledger("cli") as ledger:
        a = await ledger.create_operation()
        await a.stop_heartbeat()
        await asyncio.sleep(1.2 * SHORT.staleness)
        said = await op("abort", place.name, a.operation_id, *SHORTLY)
        assert said.code == 0
        assert "none will clean up" in said.out
        assert "perdure op recover " in said.out
        said = await op("recover", place.name, a.operation_id, "--staleness", "0.3")
        assert said.code == FAILED
        assert said.out.endswith(f"{a.operation_id}: failed, in backups: aborted by 'perdure'\n")
        assert await ledger.operation_ids() == []


@pytest.mark.parametrize("has_calls", [True, False])
async def test_operation_with_live_participants_is_not_recovered(
    folder: Place, op: Op, opening: AsyncExitStack, has_calls: bool
) -> None:
    ledger = await opening.enter_async_context(folder.ledger("cli"))
    a = await ledger.create_operation()
    if has_calls:
        await a.start_call()
    said = await op("recover", folder.name, a.operation_id, *SHORTLY)
    assert (said.code, said.out.splitlines()[-1]) == (
        0,
        f"{a.operation_id}: its participants are alive, nothing to do",
    )
    await asyncio.sleep(3 * SHORT.look_every)
    assert a.failure is None


async def test_a_crashed_participant_looks_stale(folder: Place, op: Op) -> None:
    async with folder.ledger("cli") as ledger:
        a = await ledger.create_operation()
        await a.start_call()
        await a.stop_heartbeat()
        await asyncio.sleep(0.5)
        said = await op("show", folder.name, a.operation_id, "--staleness", "0.4")
        assert re.search(r"── cli  pid \d+  heartbeat \d\.\ds ago, stale\n", said.out)
        said = await op("show", folder.name, a.operation_id, "--staleness", "60")
        assert "stale" not in said.out


async def test_unique_part_of_an_id_selects_an_operation(
    folder: Place, op: Op, opening: AsyncExitStack
) -> None:
    ledger = await opening.enter_async_context(folder.ledger("cli"))
    first, second = [await ledger.create_operation() for _ in range(2)]
    said = await op("show", folder.name, first.operation_id[-8:])
    assert said.out.startswith(first.operation_id)
    await first.complete()
    said = await op("show", folder.name, "cli")
    assert said.out.startswith(second.operation_id)
    third = await ledger.create_operation()
    said = await op("show", folder.name, "cli")
    assert (said.code, said.out) == (REFUSED, "")
    assert "'cli' matches 2 operation ids" in said.err
    assert f"pass one of {second.operation_id}, {third.operation_id}" in said.err
    said = await op("show", folder.name, "")
    assert (said.code, "there is no operation ''" in said.err) == (REFUSED, True)


async def test_control_characters_in_a_ledger_are_escaped(
    folder: Place, op: Op, opening: AsyncExitStack
) -> None:
    ledger = await opening.enter_async_context(folder.ledger("cli"))
    a = await ledger.create_operation(description="[red]\x1b[2J:smile:")
    await a.start_call(description="\x1b]0;title\x07")
    for command in (["show", folder.name, a.operation_id], ["list", folder.name]):
        said = await op(*command)
        assert r"[red]\x1b[2J:smile:" in said.out
        assert "\x1b" not in said.out


async def test_unreadable_ledger_does_not_hide_others(
    folder: Place, op: Op, opening: AsyncExitStack
) -> None:
    ledger = await opening.enter_async_context(folder.ledger("cli"))
    a = await ledger.create_operation()
    os.close(os.open(f"{folder.name}/broken.operation.json", os.O_CREAT))
    said = await op("list", folder.name)
    assert said.code == 0
    assert re.search(rf"{re.escape(a.operation_id)} +running", said.out)
    assert re.search(r"broken +unreadable .* is not the ledger of an operation", said.out)
    said = await op("show", folder.name, "broken")
    assert said.code == REFUSED


async def test_times_without_a_zone_are_utc(folder: Place, op: Op) -> None:
    """As another program may write them."""
    async with folder.ledger("cli") as ledger:
        a = await ledger.create_operation()
        await a.start_call()
        path = Path(folder.name) / f"{a.operation_id}.operation.json"
        naive = re.sub(r'("(?:startTime|lastHeartbeat)": "[^"]*)Z"', r'\1"', path.read_text())
    path.write_text(naive)
    for said in (await op("list", folder.name), await op("show", folder.name, a.operation_id)):
        assert (said.code, said.err) == (0, "")
        assert re.search(r"running", said.out)
        assert re.search(r"\d\.\ds ago", said.out)


@pytest.mark.parametrize("command", ["show", "watch", "log", "abort", "recover"])
async def test_unknown_operation_is_refused(folder: Place, op: Op, command: str) -> None:
    os.mkdir(folder.name)
    said = await op(command, folder.name, "20260101T00:00:00.000-x-00000000")
    assert (said.code, said.out) == (REFUSED, "")
    assert "there is no operation '20260101T00:00:00.000-x-00000000'" in said.err
    assert "perdure op list --all LEDGER" in said.err


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("{}/nowhere", "there is no directory"),
        ("{}/file", "is not a directory"),
        ("sqlite:///{}/nowhere.db", "holds no store"),
        ("sqlite:///{}/file", "holds no store"),
        ("mysql://user:secret@host/x", "names no store"),
        ("postgresql://user:secret@localhost:1/x", "can't be reached"),
        ("http://[", "is not a URL"),
    ],
)
async def test_missing_directory_or_store_is_refused(
    op: Op, strange: Path, place: str, complaint: str
) -> None:
    said = await op("list", place.format(strange))
    assert (said.code, said.out) == (REFUSED, "")
    assert complaint in said.err
    assert "secret" not in said.err
    assert os.listdir(strange) == ["file"]


@pytest.mark.postgres
async def test_database_without_a_store_stays_without_one(op: Op, fresh_postgres: str) -> None:
    for _ in range(2):
        said = await op("list", fresh_postgres)
        assert (said.code, "holds no store" in said.err) == (REFUSED, True)


async def test_ended_operation_is_not_aborted(
    place: Place, op: Op, opening: AsyncExitStack
) -> None:
    ledger = await opening.enter_async_context(place.ledger("cli"))
    a = await ledger.create_operation()
    await a.complete()
    said = await op("abort", place.name, a.operation_id)
    assert (said.code, said.out) == (REFUSED, "")
    assert f"operation {a.operation_id!r} is completed" in said.err


@pytest.mark.parametrize("staleness", ["0", "-1", "nan", "inf"])
async def test_invalid_staleness_is_refused(folder: Place, op: Op, staleness: str) -> None:
    said = await op("list", folder.name, f"--staleness={staleness}")
    assert (said.code, "--staleness is" in said.err) == (REFUSED, True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (9.96, "10.0s"), (59.9, "59s"), (61, "1m 1s"), (7300, "2h 1m"), (90000, "1d 1h")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text
