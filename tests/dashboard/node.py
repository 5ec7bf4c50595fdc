"""The tools of the dashboard's sources, where node is there: installed once, from the lock file, without scripts."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

SOURCES = ROOT / "dashboard"
OLDEST_NODE = 20


def require_node() -> None:
    """Skips the test without npm and a recent node."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip(
            "there is no node: the built files of the dashboard are not compared with their sources"
        )
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.strip().removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        pytest.skip(
            f"node {version.strip()} is too old to build the dashboard: it needs {OLDEST_NODE}"
        )


def installed_tools() -> Path:
    """`node_modules` as the lock file says. Workers of one test run install it one after the other."""
    require_node()
    modules = SOURCES / "node_modules"
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "dashboard-tools.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark, wanted = modules / ".installed", (SOURCES / "package-lock.json").read_text()
        if not mark.exists() or mark.read_text() != wanted:
            flags = (
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--no-update-notifier",
                "--loglevel=error",
            )
            subprocess.run(["npm", "ci", *flags], cwd=SOURCES, check=True, capture_output=True)
            mark.write_text(wanted)
    return modules


def build_into(folder: Path) -> None:
    modules = installed_tools()
    result = subprocess.run(
        ["node", modules / "vite" / "bin" / "vite.js", "build", "--logLevel", "error"],
        cwd=SOURCES,
        env={**os.environ, "PERDURE_DASHBOARD_OUT": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
