"""What `make dist` builds is complete, and runs where nothing but its requirements is installed."""

import fcntl
import re
import tomllib
from pathlib import Path

import pytest

from tests.compiler import can_compile
from tests.packaging.building import (
    ROOT,
    Packages,
    Wheel,
    build_packages,
    build_without_compiler,
    run,
)
from tests.packaging.environments import Environment, install

COMPILED = ["perdure.core.journal", "perdure.store.sqlite"]
FIRST_PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WHERE = "import perdure.store.sqlite.connections.connection as c; print(c.__file__, c.compiled is not None)"


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Packages:
    """Built once for the whole run: the first worker that gets the lock builds."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "packages"
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            return build_packages(folder)
    return Packages(folder)


@pytest.fixture(scope="session")
def wheel(packages: Packages) -> Wheel:
    return packages.wheel


def first_program() -> str:
    found = FIRST_PROGRAM.search((ROOT / "README.md").read_text())
    assert found is not None
    return found[1]


def run_first_program(environment: Environment, folder: Path) -> None:
    program = folder / "program.py"
    program.write_text(first_program())
    assert run(environment.python, "-I", program, cwd=folder) == "receipt 42\n"


def imported_from(environment: Environment, folder: Path) -> tuple[Path, bool]:
    """Where an installed module is, and whether it found its compiled part."""
    place, is_compiled = run(environment.python, "-I", "-c", WHERE, cwd=folder).rsplit(maxsplit=1)
    return Path(place), is_compiled == "True"


def sources(pattern: str) -> set[str]:
    return {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob(pattern)}


def test_sdist_holds_what_make_test_needs(packages: Packages) -> None:
    names = packages.sdist_names()
    tree = packages.folder / "tree"
    pages = {page.name for page in tree.glob("*.md")}
    assert {"Makefile", "pyproject.toml", "setup.py", "LICENSE"} | pages <= names
    for folder in ("bench", "docs", "examples", "requirements", "src", "tests", "tools"):
        files = [path for path in (tree / folder).rglob("*") if path.is_file()]
        built = {name for name in names if name.startswith(f"{folder}/")}
        assert {str(path.relative_to(tree)) for path in files} == built


def test_wheel_holds_the_package_and_its_data_only(wheel: Wheel) -> None:
    names = {name for name in wheel.names() if ".dist-info/" not in name}
    others = {name for name in names if not name.endswith((".so", ".pyd"))}
    code = sources("*.py") | sources("*.pyi") | sources("*.sql") | {"perdure/py.typed"}
    pages = {name for name in sources("dashboard/static/**/*") if (ROOT / "src" / name).is_file()}
    assert pages
    assert others == code | pages
    assert {name for name in others if "/migrations/sqlite/" in name}
    assert {name for name in others if "/migrations/postgres/" in name}


def test_wheel_holds_the_licence(wheel: Wheel) -> None:
    assert [name for name in wheel.names() if name.endswith(".dist-info/licenses/LICENSE")]
    assert wheel.metadata()["License-Expression"] == "Apache-2.0"


def test_wheel_is_compiled_where_a_compiler_is(wheel: Wheel) -> None:
    assert wheel.compiled() == (COMPILED if can_compile() else [])


def test_metadata_offers_extras_for_users_and_names_no_address(wheel: Wheel) -> None:
    metadata = wheel.metadata()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert metadata.get_all("Provides-Extra") == list(project["optional-dependencies"])
    assert metadata.get_all("Classifier") == project["classifiers"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert not {"Project-URL", "Home-page", "Download-URL", "Author-email"} & set(metadata.keys())


def test_wheel_runs_with_its_required_dependencies_alone(wheel: Wheel, tmp_path: Path) -> None:
    environment = install(wheel, "", tmp_path / "environment")
    place, is_compiled = imported_from(environment, tmp_path)
    assert place.is_relative_to(environment.site_packages)
    assert is_compiled == can_compile()
    run_first_program(environment, tmp_path)


def test_wheel_built_without_a_compiler_runs_too(packages: Packages, tmp_path: Path) -> None:
    (tmp_path / "built").mkdir()
    wheel = build_without_compiler(packages, tmp_path / "built")
    assert wheel.compiled() == []
    environment = install(wheel, "cli", tmp_path / "environment")
    place, is_compiled = imported_from(environment, tmp_path)
    assert place.is_relative_to(environment.site_packages)
    assert not is_compiled
    run_first_program(environment, tmp_path)
    assert "worker" in run(environment.folder / "bin" / "perdure", "--help", cwd=tmp_path)
