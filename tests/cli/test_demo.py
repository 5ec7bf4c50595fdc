"""`perdure demo`, and the command line around it, as processes."""

import os
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "import sys; from perdure.cli import main; sys.exit(main())"]

WITHOUT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
sys.argv = ["perdure", "demo"]
from perdure.cli import main
sys.exit(main())
"""

STARTS = {"charge": 1, "reserve": 1, "pack": 2, "ship": 2, "email": 1, "invoice": 1}


def perdure(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command, as if it were piped; `folder` is where it makes its temporary files."""
    environment = dict(os.environ, COLUMNS="80")
    if folder is not None:
        environment["TMPDIR"] = str(folder)
    return subprocess.run(
        [*COMMAND, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )


def test_demo_survives_a_killed_worker_and_shows_clean_books(tmp_path: Path) -> None:
    done = perdure("demo", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout
    first, second = re.findall(r"\(pid (\d+)\)", text)
    assert first != second
    assert f"kill -9 {first} in the middle of 'pack': the worker is dead (exit code -9)" in text

    before, _, after = text.partition("── kill -9 ──")
    assert re.search(
        r"\d+ InvokeStarted +root.3 pack +\(attempt 1 starts\)$", before.rstrip(" ─\n")
    )
    assert re.search(r"in doubt: retry +root.3 pack +002100000000000 attempt 2", after)
    assert re.search(r"InvokeCompleted +root.3 pack +002100000000001 1 entry", after)
    assert "InvokeCompleted    root.0 charge" not in after
    assert "root.3 pack     002100000000001  active · attempt 2 · leg 1 done · 1 entry" in after

    counts = re.findall(r"^  (\w+) +(\d) +(\d)(?: |$)", after, re.MULTILINE)
    assert {task: int(started) for task, started, _ in counts} == STARTS
    assert {finished for _, _, finished in counts} == {"1"}
    assert re.search(r"pack +2 +1 +in doubt after the kill, retried with the same key", after)
    assert re.findall(r"(audit|verify) +clean", after) == ["audit", "verify"]
    assert max(map(len, text.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_worker_no_folder_and_no_traceback(
    tmp_path: Path, sent: signal.Signals
) -> None:
    environment = dict(os.environ, TMPDIR=str(tmp_path))
    process = subprocess.Popen(
        [*COMMAND, "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    pids = (re.search(r"\(pid (\d+)\)", line) for line in process.stdout)
    worker = next(int(pid[1]) for pid in pids if pid)
    process.send_signal(sent)
    _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (128 + sent, "")
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert list(tmp_path.iterdir()) == []


def test_help_names_the_commands_and_loads_none_of_them() -> None:
    code = (
        "import sys; from perdure.cli import main; sys.argv = ['perdure', '--help']; main();"
        "print([name for name in sys.modules if name.startswith('perdure.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert re.search(r"demo +Kill a worker", done.stdout)
    assert done.stdout.splitlines()[-1] == "['perdure.cli.exit_codes', 'perdure.cli.app']"


def test_the_version_is_that_of_the_package() -> None:
    assert perdure("--version").stdout.strip() == version("perdure")


def test_an_unknown_command_is_refused_by_name() -> None:
    done = perdure("dmeo")
    assert done.returncode != 0
    assert "dmeo" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", ["cyclopts", "rich"])
def test_without_the_extra_the_command_says_how_to_install_it(missing: str) -> None:
    command = [sys.executable, "-c", WITHOUT.format(missing=missing)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'perdure[cli]'" in done.stderr
    assert missing in done.stderr
    assert "Traceback" not in done.stderr


def test_the_library_imports_nothing_of_the_command_line() -> None:
    code = (
        "import sys, perdure; names = {name.partition('.')[0] for name in sys.modules};"
        "print(sorted(names & {'cyclopts', 'rich'}), 'perdure.cli' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[] False"
