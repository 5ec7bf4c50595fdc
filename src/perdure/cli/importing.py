"""Imports of user code named on the command line."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from perdure import GraphInvalid, InputError


class CodeFailed(InputError):
    """User code raised an exception, which is the cause of this error."""


def import_named(name: str, where: str) -> ModuleType:
    """Imports a module. Raises `InputError` if it does not exist, `CodeFailed` if its code raised.

    Passes `GraphInvalid` through unchanged. `where` begins the remedy for a missing module ("start the worker").
    """
    folder = str(Path.cwd())
    if (
        folder not in sys.path
    ):  # the path of an installed command has the folder of that command instead
        sys.path.insert(0, folder)
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
        raise code_failed(f"module {name!r}", error) from error
    except Exception as error:
        raise code_failed(f"module {name!r}", error) from error


def code_failed(what: str, error: Exception) -> CodeFailed:
    return CodeFailed(f"{what} raised {type(error).__name__}: {error}", "see the traceback")


def type_for_people(found: object) -> str:
    """The type of an object, for error texts."""
    kind = type(found)
    return "None" if found is None else f"a {kind.__module__}.{kind.__qualname__}"
