"""Perdure: durable execution for Python. Programs that survive any crash, with proof.

The public names are those of `perdure.public`. They are imported on the first use of one, so that what needs none of
them, such as `perdure --help`, starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.public import *  # noqa: F403 - the names are listed there
    from perdure.public import __all__ as __all__


def __getattr__(name: str) -> Any:
    # Only for public names: the import system asks for others, too, such as `__path__`.
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    public = import_module("perdure.public")
    names = {each: getattr(public, each) for each in public.__all__}
    globals().update(names, __all__=public.__all__)
    if name not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("perdure.public").__all__})
