"""What the documents show is run, and says what they say it says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run_python(code: str, folder: Path) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def test_the_program_in_the_readme_prints_what_its_comments_say(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    balances, report = run_python(code, tmp_path).splitlines()
    assert balances == "{'step:root.0': 1100000000000}"
    assert report.endswith("clean (runs 1, entries 2, accounts 1)")


def test_the_demo_survives_a_kill_and_names_what_was_tampered_with() -> None:
    command = [sys.executable, str(ROOT / "examples/books.py")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "was killed (exit -9)" in done.stdout
    assert "charge is done, ship is open" in done.stdout
    assert done.stdout.count(": clean (runs 1, entries 12, accounts 2)") == 2
    assert re.search(r"balance_differs: run r_\w+ entry 4: step:root.0", done.stdout)
    assert re.search(r"entry_altered: run r_\w+ entry 1", done.stdout)


def test_links_between_documents_lead_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
