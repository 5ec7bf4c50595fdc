"""Loads the engine that `module:name` names from user code."""

from collections.abc import Callable
from types import ModuleType
from typing import Annotated

from cyclopts import Parameter

from perdure import Engine, InputError
from perdure.cli.importing import code_failed, import_named, type_for_people

EngineStoreOption = Annotated[
    str | None,
    Parameter(name="--store", help="URL of the store. Default: the store of the engine."),
]

_FORM = "pass a module and an engine in it, such as 'orders.app:engine'"


def load_engine(target: str, doing: str = "run the command") -> Engine:
    """The engine of that name, or the engine that the function of that name returns.

    Raises `InputError`; an exception of user code is its cause. `doing` begins the remedy for a missing module.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name.isidentifier():
        raise InputError(f"{target!r} is not the name of an engine", _FORM)
    module = import_named(module_name, doing)
    try:
        found: object = getattr(module, name)
    except AttributeError:
        raise InputError(
            f"module {module_name!r} has no {name!r}", _engines_in(module_name, module)
        ) from None
    if callable(found):
        target, found = f"{target}()", _call(target, found)
    if not isinstance(found, Engine):
        raise InputError(
            f"{target} is {type_for_people(found)}",
            "pass the name of a perdure.Engine that is not open, or of a function without arguments that returns one",
        )
    return found


def _call(target: str, function: Callable[[], object]) -> object:
    try:
        return function()
    except Exception as error:
        raise code_failed(f"{target}()", error) from error


def _engines_in(module_name: str, module: ModuleType) -> str:
    engines = [name for name, value in vars(module).items() if isinstance(value, Engine)]
    if not engines:
        return "create an engine there: engine = perdure.Engine(url)"
    return f"pass {' or '.join(f'{module_name}:{name}' for name in engines)}"
