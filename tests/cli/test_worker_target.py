"""Loading the engine that `module:name` names, and the errors of invalid names."""

import re
from pathlib import Path

import pytest

from perdure import Engine, InputError
from perdure.cli.user_code import load_engine
from perdure.testing.probe import Probe
from tests.cli import worker_app

APP = "tests.cli.worker_app"


@pytest.mark.parametrize("name", ["engine", "make_engine"])
def test_target_is_an_engine_or_a_function_that_returns_one(name: str) -> None:
    assert load_engine(f"{APP}:{name}") is worker_app.engine


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (
            APP,
            "is not the name of an engine: pass a module and an engine in it, such as 'orders.app:engine'",
        ),
        (f"{APP}:", "is not the name of an engine"),
        (":engine", "is not the name of an engine"),
        (f"{APP}:a-b", "is not the name of an engine"),
        ("nowhere.app:engine", "there is no module 'nowhere': run the command in the folder"),
        ("tests.cli.nowhere:engine", "there is no module 'tests.cli.nowhere'"),
        (f"{APP}:motor", f"module '{APP}' has no 'motor': pass {APP}:engine"),
        ("tests.cli.test_demo:engine", "has no 'engine': create an engine there"),
        (f"{APP}:a_number", "a_number is a builtins.int: pass the name of a perdure.Engine"),
        (
            f"{APP}:a_sync_engine",
            "a_sync_engine is a perdure.client.sync.SyncEngine: pass the name of a",
        ),
        (f"{APP}:make_nothing", r"make_nothing\(\) is None: pass the name of a perdure.Engine"),
        (f"{APP}:fail", r"fail\(\) raised RuntimeError: no engine today: see the traceback"),
    ],
)
def test_invalid_target_is_refused_with_a_remedy(target: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        load_engine(target)


def test_failing_module_and_missing_module_raise_different_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "worker_needs.py").write_text("import a_package_that_is_missing\n")
    (tmp_path / "worker_breaks.py").write_text("1 / 0\n")
    with pytest.raises(InputError, match="module 'worker_needs' raised ModuleNotFoundError") as one:
        load_engine("worker_needs:engine")
    assert isinstance(one.value.__cause__, ModuleNotFoundError)
    with pytest.raises(InputError, match=re.escape("raised ZeroDivisionError")) as two:
        load_engine("worker_breaks:engine")
    assert isinstance(two.value.__cause__, ZeroDivisionError)


def test_an_engine_is_replaced_by_one_with_other_queues_and_settings() -> None:
    engine = Engine("sqlite:///:memory:", queues=["a"])
    other = engine.replace(queues=["b"])
    assert (engine.queues, other.queues) == (("a",), ("b",))
    assert other.settings is engine.settings
    with pytest.raises(InputError, match="pass a sequence"):
        engine.replace(queues="ab")


async def test_replaced_copy_of_an_open_engine_is_not_open(tmp_path: Path) -> None:
    async with Engine(f"sqlite:///{tmp_path}/one.db") as engine:
        other = engine.replace()
        async with other:
            assert Probe(other).host_id != Probe(engine).host_id
        assert (await engine.audit()).is_clean
