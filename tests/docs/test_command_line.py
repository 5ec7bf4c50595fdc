"""Types the sessions of the pages about the command line and the dashboard, and compares what they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

PAGES = ("command-line.md", "dashboard.md")
PART = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
MARK = "== next command =="

VARYING = (
    (re.compile(r"r_[0-9a-f]{32}"), "RUN"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "INSTANT"),
    (re.compile(r"\d+(\.\d+)? ?(s|min|ms)( \d+ s)?( ago)?\b"), "TIME"),
    (re.compile(r"sqlite:////\S*/orders.db"), "STORE"),
    (re.compile(r"entries \d+, accounts \d+"), "COUNTS"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
)
"""What differs from run to run, and what stands for it."""


@pytest.mark.parametrize("page", PAGES)
def test_sessions_print_what_the_page_shows(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / page).read_text()
    for language, title, body in PART.findall(text):
        if title:
            (tmp_path / title).write_text(body)
        elif language == "console":
            commands, shown = session(body)
            assert typed(commands, tmp_path) == list(map(plain, shown))


def session(block: str) -> tuple[list[str], list[str]]:
    """The commands, and what each prints."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return parts[::2], parts[1::2]


def typed(commands: list[str], folder: Path) -> list[str]:
    """What each command prints, in one shell; its workers end with it."""
    script = "".join(f"{command}\necho '{MARK}'\n" for command in commands)
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "PERDURE_STORE"}
    done = subprocess.run(
        ["bash", "-c", f"trap 'kill $(jobs -p); wait' EXIT\n{script}"],
        cwd=folder,
        env=environment | {"PATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    printed = done.stdout.split(f"{MARK}\n")
    assert len(printed) == len(commands) + 1, done.stdout + done.stderr
    return list(map(plain, printed[:-1]))


def plain(text: str) -> str:
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return text.strip()
