"""Users' code, imported by the name that a command was given."""

from importlib import import_module
from types import ModuleType

from perdure import GraphInvalid, InputError


class CodeFailed(InputError):
    """The user's own code raised: its exception is the cause, with the traceback."""


def import_named(name: str, where: str) -> ModuleType:
    """The module of that name. Raises `InputError`: `CodeFailed` if the user's own code raised.

    If a graph is refused there, `GraphInvalid` is raised as it is. `where` says what to do in the folder that holds
    the module.
    """
    try:
        return import_module(name)
    except GraphInvalid:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise InputError(
                f"there is no module {error.name!r}",
                f"{where} in the folder that holds it, or install it, or set PYTHONPATH",
            ) from None
        raise failed(f"module {name!r}", error) from error
    except Exception as error:
        raise failed(f"module {name!r}", error) from error


def failed(what: str, error: Exception) -> CodeFailed:
    return CodeFailed(f"{what} raised {type(error).__name__}: {error}", "see the traceback")


def kind_of(found: object) -> str:
    """What it is, for people."""
    kind = type(found)
    return "None" if found is None else f"a {kind.__module__}.{kind.__qualname__}"
