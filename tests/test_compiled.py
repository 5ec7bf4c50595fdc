"""What is compiled where that is possible: else the tests of the quick ways would be left out unnoticed."""

import sysconfig
from importlib import import_module
from pathlib import Path
from shutil import which

import pytest

ROOT = Path(__file__).parent.parent


def can_compile() -> bool:
    compiler = (sysconfig.get_config_var("CC") or "").split()
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return bool(compiler) and which(compiler[0]) is not None and header.exists()


def packages() -> list[str]:
    """Those that have sources in C."""
    source = ROOT / "src"
    folders = (each.parent for each in source.rglob("compiled/quick.c"))
    return sorted(".".join(folder.parent.relative_to(source).parts) for folder in folders)


def test_there_is_something_to_compile() -> None:
    assert packages() == ["perdure.core.journal", "perdure.store.sqlite"]


@pytest.mark.parametrize("package", packages())
def test_where_it_can_be_compiled_it_is(package: str) -> None:
    if can_compile():
        import_module(f"{package}._quick")
