import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from perdure import task, workflow
from perdure.authoring import registry
from perdure.authoring.registry import find, register, registered_names, versions_of
from perdure.core.errors import DuplicateName

Load = Callable[[str, str], ModuleType]


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_known", {})


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Makes a user's module from its source; under the same name again, it is reloaded."""

    def loaded(name: str, source: str) -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(f"from perdure import task, workflow\n{source}")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return loaded


CHARGE = "@task\ndef charge(): ...\n"


def test_a_definition_is_found_by_its_name() -> None:
    @task
    def charge() -> None: ...

    assert find("task", "charge") is charge


def test_unregistered_name_is_not_found() -> None:
    assert find("task", "charge") is None


def test_a_task_and_a_workflow_may_share_a_name() -> None:
    @task(name="charge")
    def act() -> None: ...

    @workflow(name="charge")
    async def decide() -> None: ...

    assert (find("task", "charge"), find("program", "charge")) == (act, decide)


def test_names_are_listed_by_kind_in_order() -> None:
    @task(name="b")
    def one() -> None: ...

    @task(name="a")
    def two() -> None: ...

    @workflow(name="c")
    async def three() -> None: ...

    assert registered_names("task") == ["a", "b"]


def test_two_modules_cant_share_a_tasks_name(load: Load) -> None:
    load("orders", CHARGE)
    with pytest.raises(DuplicateName) as caught:
        load("billing", f"\n{CHARGE}")
    assert "billing.py:3) has the name of another one" in caught.value.what
    assert "orders.py:2)" in caught.value.what
    assert caught.value.remedy == "give one of them another: @task(name=...)"


def test_a_refused_definition_leaves_the_first_in_its_place(load: Load) -> None:
    first = load("orders", CHARGE)
    with pytest.raises(DuplicateName):
        load("billing", CHARGE)
    assert find("task", "charge") is first.charge


def test_two_functions_of_a_module_cant_share_a_name(load: Load) -> None:
    with pytest.raises(DuplicateName, match=r"@workflow\(name=\.\.\.\)"):
        load(
            "orders",
            "@workflow(name='a')\nasync def one(): ...\n@workflow(name='a')\nasync def two(): ...\n",
        )


def test_a_module_that_is_loaded_again_replaces_its_own_definitions(load: Load) -> None:
    load("orders", CHARGE)
    again = load("orders", f"\n\n{CHARGE}")
    assert find("task", "charge") is again.charge


def test_a_function_defined_inside_another_is_replaced_by_the_newest() -> None:
    def define() -> object:
        @task
        def charge() -> None: ...

        return charge

    older, newer = define(), define()
    assert older is not newer
    assert find("task", "charge") is newer


def test_a_definition_that_is_registered_again_is_the_newest_again() -> None:
    @task(name="charge")
    def older() -> None: ...

    @task(name="charge")
    def newer() -> None: ...

    assert find("task", "charge") is newer
    register(older)
    assert find("task", "charge") is older


TWO_VERSIONS = """
@workflow(name="checkout", version="1")
async def first(): ...
@workflow(name="checkout", version="2")
async def second(): ...
"""


def test_versions_of_a_workflow_are_registered_side_by_side(load: Load) -> None:
    orders = load("orders", TWO_VERSIONS)
    assert versions_of("program", "checkout") == ["1", "2"]
    assert find("program", "checkout", "1") is orders.first
    assert find("program", "checkout", "2") is orders.second
    assert registered_names("program") == ["checkout"]


def test_the_version_registered_last_is_the_current_one(load: Load) -> None:
    orders = load("orders", TWO_VERSIONS)
    assert find("program", "checkout") is orders.second
    assert find("program", "checkout", "0") is orders.second


def test_a_workflow_without_a_version_is_a_version_of_its_own() -> None:
    @workflow(name="checkout")
    async def plain() -> None: ...

    @workflow(name="checkout", version="2")
    async def second() -> None: ...

    assert find("program", "checkout", "") is plain
    assert find("program", "checkout") is second
    assert versions_of("program", "checkout") == ["", "2"]


def test_a_version_that_is_registered_again_keeps_its_place(load: Load) -> None:
    load("orders", TWO_VERSIONS)
    again = load("orders", TWO_VERSIONS.partition('@workflow(name="checkout", version="2")')[0])
    assert find("program", "checkout", "1") is again.first
    assert versions_of("program", "checkout") == ["1", "2"]


def test_two_modules_cant_share_a_workflows_name_and_version(load: Load) -> None:
    orders = load("orders", TWO_VERSIONS)
    with pytest.raises(DuplicateName) as caught:
        load("billing", TWO_VERSIONS)
    assert "billing.py:3) has the name and version of another one" in caught.value.what
    assert caught.value.remedy == "give one of them another: @workflow(name=...) or version=..."
    assert find("program", "checkout", "1") is orders.first


def test_unregistered_name_has_no_versions() -> None:
    assert versions_of("program", "checkout") == []
    assert find("program", "checkout", "1") is None
    assert registered_names("program") == []


def test_a_refused_definition_does_not_make_its_name_known(load: Load) -> None:
    load("orders", CHARGE)
    with pytest.raises(DuplicateName):
        load("billing", CHARGE)
    assert registered_names("task") == ["charge"]


CELL = """
from perdure import task, workflow

@task
async def charge() -> int:
    return {number}

@workflow
async def checkout() -> int:
    return await charge()
"""

OTHER = """
@task(name="charge")
async def other() -> int:
    return 3
"""

SESSION = """
import sys
from perdure.authoring import registry
from perdure.core.errors import DuplicateName

for number, source in enumerate(sys.argv[1:3]):
    exec(compile(source, f"/tmp/ipykernel_1/{number}.py", "exec"), globals())
print(registry.find("task", "charge").fn is charge.fn, registry.find("program", "checkout") is checkout)
try:
    exec(compile(sys.argv[3], "/tmp/ipykernel_1/2.py", "exec"), globals())
except DuplicateName as error:
    print(error.code)
"""


def test_edited_notebook_cell_replaces_its_definition() -> None:
    """Each edit of a cell is a file of its own to Python. Another function of that name is still refused."""
    cells = [CELL.format(number=number) for number in (1, 2)]
    done = subprocess.run(
        [sys.executable, "-c", SESSION, *cells, OTHER],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["True", "True", "duplicate-name"], done.stderr
