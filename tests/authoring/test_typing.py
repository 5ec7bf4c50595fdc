import re
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

CASES = Path(__file__).with_name("typing_cases.py")

IGNORE = re.compile(r"# type: ignore\[(.+)\]")
ERROR = re.compile(r"cases\.py:(\d+): error: .*\[([a-z-]+)\]")

Reports = set[tuple[int, str]]


def expected(source: str) -> Reports:
    return {
        (number, code)
        for number, line in enumerate(source.splitlines(), 1)
        if (marked := IGNORE.search(line))
        for code in marked[1].split(", ")
    }


def reported(source: str, directory: Path) -> tuple[Reports, str]:
    """What mypy reports for `source` with the project's own settings, and its whole output."""
    copy = directory / "cases.py"
    copy.write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(copy)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    found = {(int(number), code) for number, code in ERROR.findall(done.stdout)}
    return found, done.stdout


def test_correct_uses_have_the_right_types_and_wrong_uses_are_reported_at_their_lines(
    tmp_path: Path,
) -> None:
    source = CASES.read_text()
    found, output = reported(IGNORE.sub("", source), tmp_path)
    assert found == expected(source), output
