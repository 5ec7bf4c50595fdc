"""Type names that are the same in every process, whether their module runs as a script or is imported.

In `python app.py` the module is `__main__`; in a worker that imports it, `app`. Stored type names always say `app`. A
process that has the module under both names has two classes of each name: then the module of the calling code decides.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

MAIN: Final = "__main__"

_SCRIPTS: Final = (MAIN, "__mp_main__")
"""Names of the script's module. The second is used in processes that `multiprocessing` spawns."""


def script_name() -> str:
    """The name under which other processes import this process's script; `__main__` if they can't."""
    main = sys.modules.get(MAIN)
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m
        return str(spec.name)
    file = getattr(main, "__file__", None)
    names = _names_of_file(file, tuple(sys.path)) if isinstance(file, str) else ()
    return names[0] if names else MAIN


@lru_cache(maxsize=16)
def _names_of_file(file: str, path: Sequence[str]) -> tuple[str, ...]:
    """The names under which a file can be imported, given that search path; the most likely one first."""
    script = Path(os.path.realpath(file))
    if script.suffix != ".py":
        return ()
    found: list[tuple[bool, int, str]] = []
    for entry in dict.fromkeys(path):
        folder = Path(os.path.realpath(entry))
        if folder in script.parents:
            name = ".".join(script.relative_to(folder).with_suffix("").parts)
            if all(map(str.isidentifier, name.split("."))):
                # A package's own folder is on the path only if its script was started by file name.
                found.append(((folder / "__init__.py").exists(), -len(folder.parts), name))
    return tuple(name for *_, name in sorted(found))


def stable_name(module: str) -> str:
    """The module's name, the same in every process."""
    return script_name() if module in _SCRIPTS else module


def type_name(cls: type) -> str:
    """'module:qualified.name', the same in every process."""
    return f"{stable_name(cls.__module__)}:{cls.__qualname__}"


def origin_of(fn: FunctionType) -> tuple[str, str]:
    """The file, or `__main__` for an interactive session, and the qualified name of a function.

    A notebook gives each edit of a cell another file name.
    """
    file = fn.__code__.co_filename
    if fn.__module__ in _SCRIPTS and file != getattr(sys.modules.get(MAIN), "__file__", None):
        file = MAIN
    return file, fn.__qualname__


def modules_named(stored: str, home: str | None = None) -> Iterator[ModuleType]:
    """The modules that a stored name may refer to in this process, the most likely first.

    `home` is the module of the calling code. Raises what importing a module raises.
    """
    if stored in _SCRIPTS or stored == script_name() or _is_file_of_script(stored):
        yield from _script(home)
    else:
        try:
            yield import_module(stored)
        except ModuleNotFoundError:
            if home is None or not _may_be_same(stored, home):
                raise
    if home is not None and (stored in _SCRIPTS or _may_be_same(stored, home)):
        asking = sys.modules.get(home)
        if asking is not None:
            yield asking


def _script(home: str | None) -> Iterator[ModuleType]:
    """The script, and the module that was imported from the same file.

    If both exist, only the script's own code refers to the script; all other code has imported the module.
    """
    names = [script_name(), MAIN]
    if home in _SCRIPTS:
        names.reverse()
    yield from (sys.modules[name] for name in dict.fromkeys(names) if name in sys.modules)


def _is_file_of_script(name: str) -> bool:
    """Whether the running script is the file of that module of a package."""
    file = getattr(sys.modules.get(MAIN), "__file__", None)
    if "." not in name or not isinstance(file, str):
        return False
    parts = name.split(".")
    return Path(file).with_suffix("").parts[-len(parts) :] == tuple(parts)


def _may_be_same(stored: str, home: str) -> bool:
    """Whether two names may refer to one module, with and without the name of its package."""
    return stored == home or stored.endswith(f".{home}") or home.endswith(f".{stored}")
