"""Which store a command uses, and what it refuses."""

from pathlib import Path

import pytest

from perdure import InputError
from perdure.cli.exit_codes import REFUSED
from perdure.cli.store_setting import store_url
from tests.cli.conftest import Command

FILE = "perdure.toml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a setting of the project in the folder above."""
    (tmp_path / FILE).write_text('store = "sqlite:///project.db"\n')
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    return inner


def test_option_goes_before_variable_and_variable_before_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_file = f"sqlite:///{folder.parent}/project.db"
    assert store_url(None) == in_file
    monkeypatch.setenv("PERDURE_STORE", "sqlite:///variable.db")
    assert store_url(None) == "sqlite:///variable.db"
    assert store_url("sqlite:///option.db") == "sqlite:///option.db"


def test_nearest_file_is_used(folder: Path) -> None:
    (folder / FILE).write_text('store = "postgresql://db/orders"\n')
    assert store_url(None) == "postgresql://db/orders"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("store = ", "can't be read"),
        ("store = 7", "has no `store`"),
        ("", "has no `store`"),
        ('stor = "x"', "has the setting 'stor'"),
        ('store = "x"\nqueue = "y"', "has the setting 'queue'"),
    ],
)
def test_invalid_file_is_refused(folder: Path, text: str, said: str) -> None:
    (folder / FILE).write_text(text)
    with pytest.raises(InputError, match=said):
        store_url(None)


def test_no_store_is_refused_with_all_three_ways(
    perdure_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = perdure_command("audit")
    assert (said.code, said.out) == (REFUSED, "")
    assert "no store is named: pass --store URL, or set PERDURE_STORE, or write" in said.err


@pytest.mark.parametrize("command", [["audit"], ["verify"], ["graph", "list"], ["backup", "b.db"]])
def test_reading_command_does_not_create_a_store(
    perdure_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = perdure_command(*command, "--store", "sqlite:///nowhere.db")
    assert said.code == REFUSED
    assert "nowhere.db holds no store" in said.err
    assert not list(tmp_path.iterdir())
