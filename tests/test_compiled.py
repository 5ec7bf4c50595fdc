"""Native modules are compiled where that is possible; otherwise their tests would be skipped unnoticed."""

from importlib import import_module

import pytest

from tests.compiler import can_compile
from tests.paths import ROOT


def native_modules() -> list[str]:
    """The modules that have sources in C; each has a stub beside the folder of its sources."""
    source = ROOT / "src"
    stubs = [stub for each in source.rglob("compiled") for stub in each.parent.glob("_*.pyi")]
    return sorted(".".join(stub.relative_to(source).with_suffix("").parts) for stub in stubs)


def test_two_packages_have_native_modules() -> None:
    packages = [name.rpartition(".")[0] for name in native_modules()]
    assert packages == ["perdure.core.journal", "perdure.store.sqlite"]


@pytest.mark.parametrize("name", native_modules())
def test_native_module_is_compiled_where_possible(name: str) -> None:
    if can_compile():
        import_module(name)


def test_native_module_is_built_from_the_current_sources() -> None:
    if can_compile():
        assert hasattr(import_module("perdure.store.sqlite._native"), "own_locks"), "run make venv"
