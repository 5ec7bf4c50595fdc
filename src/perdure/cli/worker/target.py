"""The engine that `module:name` names, loaded from the user's code."""

from collections.abc import Callable
from types import ModuleType

from perdure import Engine, InputError
from perdure.cli.importing import failed, import_named, kind_of

_FORM = "name a module and an engine in it: 'orders.app:engine'"


def load_engine(target: str) -> Engine:
    """The engine of that name, or what the function of that name returns.

    Raises `InputError`. If the user's own code raised, that is its cause.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name.isidentifier():
        raise InputError(f"{target!r} names no engine", _FORM)
    module = import_named(module_name, "start the worker")
    try:
        found: object = getattr(module, name)
    except AttributeError:
        raise InputError(
            f"module {module_name!r} has no {name!r}", _what_there_is(module_name, module)
        ) from None
    if callable(found):
        target, found = f"{target}()", _call(target, found)
    if not isinstance(found, Engine):
        raise InputError(
            f"{target} is {kind_of(found)}",
            "name a perdure.Engine that is not open, or a function without arguments that returns one",
        )
    return found


def _call(target: str, function: Callable[[], object]) -> object:
    try:
        return function()
    except Exception as error:
        raise failed(f"{target}()", error) from error


def _what_there_is(module_name: str, module: ModuleType) -> str:
    engines = [name for name, value in vars(module).items() if isinstance(value, Engine)]
    if not engines:
        return "make an engine there: engine = perdure.Engine(url)"
    return f"it has {' and '.join(f'{module_name}:{name}' for name in engines)}"
