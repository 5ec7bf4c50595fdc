import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perdure.authoring.modules import modules_named, script_name, stable_name, type_name
from perdure.core.graph.step_error import step_error_from


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module in the place of the script."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


def run_as_file(main: Any, file: Path, monkeypatch: pytest.MonkeyPatch, *path: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    main.__file__ = str(file)
    monkeypatch.setattr(sys, "path", [str(each) for each in path or [file.parent]])


def test_script_is_named_by_its_file(
    main: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as_file(main, tmp_path / "app.py", monkeypatch)
    assert script_name() == stable_name("__main__") == stable_name("__mp_main__") == "app"
    assert stable_name("other") == "other"


def test_script_of_a_package_is_named_by_the_package(
    main: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop" / "app.py"
    run_as_file(main, file, monkeypatch, file.parent, tmp_path)
    assert script_name() == "app"
    (file.parent / "__init__.py").touch()
    run_as_file(main, file, monkeypatch, file.parent, tmp_path, tmp_path / "elsewhere")
    assert script_name() == "shop.app"


def test_module_run_by_its_name_keeps_it(main: Any) -> None:
    main.__spec__ = ModuleSpec("shop.app", None)
    assert script_name() == "shop.app"


@pytest.mark.parametrize("name", ["a-b.py", "app", None])
def test_script_that_can_not_be_imported_keeps_the_name_main(
    name: str | None, main: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name is not None:
        run_as_file(main, tmp_path / name, monkeypatch)
    assert script_name() == "__main__"


def test_error_of_the_script_matches_its_stable_name_and_its_former_name(
    main: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as_file(main, tmp_path / "app.py", monkeypatch)
    cls = type("Down", (Exception,), {"__module__": "__main__"})
    assert type_name(cls) == "app:Down"
    assert type_name(ValueError) == "builtins:ValueError"
    trouble = step_error_from(cls(), named=type_name)
    assert trouble.type_name == "app:Down"
    assert {"app:Down", "__main__:Down", "builtins:Exception"} <= trouble.names


def test_script_is_not_imported_a_second_time(
    main: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as_file(main, tmp_path / "app_of_nobody.py", monkeypatch)
    assert list(modules_named("app_of_nobody")) == [main]
    assert "app_of_nobody" not in sys.modules


def test_calling_code_decides_between_the_script_and_its_module(
    main: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as_file(main, tmp_path / "app.py", monkeypatch)
    twin = ModuleType("app")
    monkeypatch.setitem(sys.modules, "app", twin)
    for stored in ("app", "__main__"):
        assert next(modules_named(stored, "__main__")) is main
        assert next(modules_named(stored, "helper")) is twin
        assert next(modules_named(stored)) is twin


def test_name_stored_by_an_older_release_means_the_calling_module(
    main: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stored `__main__`, which is another script here."""
    home = ModuleType("orders")
    monkeypatch.setitem(sys.modules, "orders", home)
    assert list(modules_named("__main__", "orders")) == [main, home]


@pytest.mark.usefixtures("main")
def test_module_inside_a_package_is_found_by_its_last_name(monkeypatch: pytest.MonkeyPatch) -> None:
    home = ModuleType("shop_of_nobody.app_of_nobody")
    monkeypatch.setitem(sys.modules, home.__name__, home)
    assert list(modules_named("app_of_nobody", home.__name__)) == [home]
    with pytest.raises(ModuleNotFoundError):
        list(modules_named("nobody", home.__name__))
