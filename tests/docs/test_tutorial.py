"""Follows the tutorial as a reader does: saves its files, types its commands, compares the output."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.markdown import ROOT

TUTORIAL = ROOT / "docs" / "tutorial" / "ten-minutes.md"

PART = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    for language, title, body in PART.findall(TUTORIAL.read_text()):
        if title:
            (tmp_path / title).write_text(body)
        elif language == "console":
            for command, shown in _commands(body):
                assert _output(command, tmp_path) == shown, command


def _commands(block: str) -> list[tuple[str, str]]:
    """Each line that begins with a dollar, and the lines that it prints."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _output(command: str, folder: Path) -> str:
    programs = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
