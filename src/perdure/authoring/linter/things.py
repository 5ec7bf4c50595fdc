"""What a name stands for, as far as that can be told without running anything."""

import sys
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import NamedTuple, cast

from perdure.authoring.linter.rules import PATH, RANDOM, READS, RULES, instead_of

ABSENT = object()


class Thing(NamedTuple):
    """What a name stands for: a dotted name, and the object itself if there is one to look into."""

    name: str
    target: object = ABSENT


_IDENTITIES: dict[int, tuple[object, str]] = {}
"""Known objects by identity, with a reference that keeps the identity theirs. A builtin may say that
it is of `posix` or `_io`, and `random.choice` is a method of a hidden object."""

_LEARNED: set[str] = set()


def learn_identities() -> None:
    """Of what is forbidden, as far as it has been loaded by now."""
    for name in (*RULES, *READS, PATH):
        if name not in _LEARNED and name.partition(".")[0] in sys.modules:
            _LEARNED.add(name)
            _learn(name)


def _learn(dotted: str) -> None:
    known, *attributes = dotted.split(".")
    target: object = sys.modules[known]
    for attribute in attributes:
        target = _static(target, attribute)
        known = f"{known}.{attribute}"
        if target is not ABSENT and not _namespace(target):
            _IDENTITIES.setdefault(id(target), (target, known))
    # Other modules have things of harmless ones in them: `queue` has `deque`. And constants may be
    # the same object everywhere.
    for attribute, value in _namespace(target).items() if instead_of(dotted) == RANDOM else ():
        if callable(value) and not attribute.startswith("_"):
            _IDENTITIES.setdefault(id(value), (value, f"{dotted}.{attribute}"))


def _namespace(target: object) -> dict[str, object]:
    """Of a module, without waking one that loads lazily; empty for anything else."""
    if not issubclass(type(target), ModuleType):
        return {}
    return cast(dict[str, object], object.__getattribute__(target, "__dict__"))


def _static(target: object, attribute: str) -> object:
    """An attribute of a module or class, without running any code of theirs."""
    found = _namespace(target).get(attribute, ABSENT)
    if issubclass(type(target), type):
        owners = cast(type, target).__mro__
        found = next((vars(c)[attribute] for c in owners if attribute in vars(c)), ABSENT)
    is_wrapped = type(found) is staticmethod or type(found) is classmethod
    return cast(MethodType, found).__func__ if is_wrapped else found


def thing_of(target: object) -> Thing:
    """Of an object that is no module, class or function, the name is that of its class."""
    if id(target) in _IDENTITIES:
        return Thing(_IDENTITIES[id(target)][1], target)
    kind = type(target)
    if issubclass(kind, ModuleType):
        return Thing(str(_namespace(target).get("__name__")), target)
    if issubclass(kind, type) or kind is FunctionType:
        return Thing(_public_name(cast(type, target)), target)
    if kind is BuiltinMethodType or kind is MethodType:
        method = cast(MethodType, target)
        return Thing(f"{thing_of(method.__self__).name}.{method.__name__}", target)
    known = next((_IDENTITIES[id(c)][1] for c in kind.__mro__ if id(c) in _IDENTITIES), None)
    return Thing(known or _public_name(kind))


def _public_name(target: type) -> str:
    """By the outermost package that has it: `requests.Session`, not `requests.sessions.Session`."""
    module, name = str(target.__module__), target.__qualname__
    parts = module.split(".")
    outer = (".".join(parts[:count]) for count in range(1, len(parts)))
    has_it = (package for package in outer if _static(sys.modules.get(package), name) is target)
    return f"{next(has_it, module)}.{name}"


def imported(dotted: str) -> Thing:
    """What an import inside a function binds. Nothing is imported for it: a name is enough."""
    if dotted in sys.modules:
        return Thing(dotted, sys.modules[dotted])
    owner, _, attribute = dotted.rpartition(".")
    return attribute_of(imported(owner), attribute) if owner else Thing(dotted)


def attribute_of(thing: Thing, attribute: str) -> Thing:
    path = f"{thing.name}.{attribute}"
    found = _static(thing.target, attribute)
    if found is ABSENT:
        return Thing(path)
    if _namespace(thing.target) and path not in READS and instead_of(path) is None:
        return thing_of(found)
    return Thing(path, found)
