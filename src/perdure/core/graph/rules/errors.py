"""Names of error types."""

import builtins
from collections.abc import Iterable, Iterator
from typing import Final

_FORMS: Final = "write 'module:Name', or 'Name' for one of Python's own"


def name_faults(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Faults of error names, each with a remedy.

    Unknown errors are allowed. A name with the same letters as one of Python's errors is taken for a misspelling.
    """
    for name in names:
        module, _, own = name.rpartition(":")
        if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
            yield f"{name!r} is no name of an error", _FORMS
        elif module in {"", "builtins"} and own not in _OWN:
            meant = _BY_LETTERS.get(_letters(own))
            if meant is not None:
                yield f"Python has no error {own!r}", f"did you mean {meant!r}?"


def _letters(name: str) -> str:
    return "".join(sorted(name.lower()))


_OWN: Final = frozenset(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
_BY_LETTERS: Final = {_letters(name): name for name in sorted(_OWN)}
