"""Resolves names to symbols without running user code."""

import inspect
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, cast

from perdure.authoring.linter.rules import PATH, RANDOM, READS, RULES, replacement_for
from perdure.authoring.linter.source import is_user_code

ABSENT = object()


class Symbol(NamedTuple):
    """What a name refers to: its dotted name, and the object itself if the linter may inspect it."""

    name: str
    target: object = ABSENT
    kind: type | None = None
    """The user's class that it is an instance of."""
    owner: type | None = None
    """The user's class that has it as an attribute."""
    instance: object = ABSENT
    """The module-level collection, or module-level instance of a user's class, that it is."""


_COLLECTIONS = (list, dict, deque, Counter, OrderedDict, defaultdict)


_IDENTITIES: dict[int, tuple[object, str]] = {}
"""Known objects by `id`, with a reference that keeps the id valid. Needed because a builtin may name `posix` or `_io`
as its module, and `random.choice` is a method of a hidden object."""

_CLASSES: dict[str, type] = {}
"""The known classes by name: an object of one has its methods."""

_LEARNED: set[str] = set()


def learn_identities() -> None:
    """Learn the identities of forbidden objects in all modules loaded so far."""
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
            _remember(target, known)
    # Only for random modules: others contain harmless objects (`queue` has `deque`). Only callables: a constant may be
    # the same object in many modules.
    for attribute, value in _namespace(target).items() if replacement_for(dotted) == RANDOM else ():
        if callable(value) and not attribute.startswith("_"):
            _remember(value, f"{dotted}.{attribute}")


def _remember(target: object, name: str) -> None:
    _IDENTITIES.setdefault(id(target), (target, name))
    if isinstance(target, type):
        _CLASSES.setdefault(name, target)


def _namespace(target: object) -> dict[str, object]:
    """The names of a module, without triggering a lazy import; empty for other objects."""
    if not issubclass(type(target), ModuleType):
        return {}
    return cast(dict[str, object], object.__getattribute__(target, "__dict__"))


def _static(target: object, attribute: str) -> object:
    """An attribute of a module or class, without running its code."""
    found = _namespace(target).get(attribute, ABSENT)
    if issubclass(type(target), type):
        owners = cast(type, target).__mro__
        found = next((vars(c)[attribute] for c in owners if attribute in vars(c)), ABSENT)
    is_wrapped = type(found) is staticmethod or type(found) is classmethod
    return cast(MethodType, found).__func__ if is_wrapped else found


def symbol_of(target: object) -> Symbol:
    """The symbol of an object. Unless it is a module, class or function, it has the name of its class."""
    if id(target) in _IDENTITIES:
        return Symbol(_IDENTITIES[id(target)][1], target)
    kind = type(target)
    if kind is partial:
        return symbol_of(cast(partial[Any], target).func)
    if issubclass(kind, ModuleType):
        return Symbol(str(_namespace(target).get("__name__")), target)
    if issubclass(kind, type) or kind is FunctionType:
        return Symbol(_public_name(cast(type, target)), target)
    if kind is BuiltinMethodType or kind is MethodType:
        method = cast(MethodType, target)
        return Symbol(f"{symbol_of(method.__self__).name}.{method.__name__}", target)
    known = next((_IDENTITIES[id(c)][1] for c in kind.__mro__ if id(c) in _IDENTITIES), None)
    if known is None and is_user_code(kind):
        return object_of(kind, target)
    instance = target if kind in _COLLECTIONS else ABSENT
    return Symbol(known or _public_name(kind), instance=instance)


def object_of(kind: type, instance: object = ABSENT) -> Symbol:
    """The symbol of an instance of a user's class, whose methods can be read."""
    return Symbol(_public_name(kind), ABSENT, kind, None, instance)


def item_of(symbol: Symbol, key: str) -> Symbol | None:
    """The value under `key` in a module-level dict; None if there is no such dict or key."""
    if type(symbol.instance) is not dict:
        return None
    # Compare texts only: comparing other keys could run user code.
    items = cast(dict[object, object], symbol.instance).items()
    return next(
        (symbol_of(value) for each, value in items if type(each) is str and each == key), None
    )


def _public_name(target: type) -> str:
    """The name in the outermost package that has it: `requests.Session`, not `requests.sessions.Session`."""
    module, name = str(target.__module__), target.__qualname__
    parts = module.split(".")
    outer = (".".join(parts[:count]) for count in range(1, len(parts)))
    has_it = (package for package in outer if _static(sys.modules.get(package), name) is target)
    return f"{next(has_it, module)}.{name}"


def imported(dotted: str) -> Symbol:
    """What an import inside a function binds. Imports nothing: the name is enough."""
    if dotted in sys.modules:
        return Symbol(dotted, sys.modules[dotted])
    owner, _, attribute = dotted.rpartition(".")
    return attribute_of(imported(owner), attribute) if owner else Symbol(dotted)


def attribute_of(symbol: Symbol, attribute: str) -> Symbol:
    path = f"{symbol.name}.{attribute}"
    if attribute == "__dict__" and _namespace(symbol.target):
        return namespace_of(symbol)
    owner = symbol.kind
    if owner is not None and symbol.instance is not ABSENT:
        own = inspect.getattr_static(symbol.instance, attribute, ABSENT)
        if own is not ABSENT and own is not inspect.getattr_static(owner, attribute, ABSENT):
            return symbol_of(own)
    if owner is None and isinstance(symbol.target, type) and is_user_code(symbol.target):
        owner = symbol.target
    found = _static(symbol.target if owner is None else owner, attribute)
    if owner is not None:
        return Symbol(path, found, None, owner)
    if found is ABSENT:
        return Symbol(path, _static(_CLASSES.get(symbol.name), attribute))
    if _namespace(symbol.target) and path not in READS and replacement_for(path) is None:
        return symbol_of(found)
    return Symbol(path, found)


def namespace_of(module: Symbol) -> Symbol:
    """The dict of a module's names, as `vars(module)` gives it."""
    return Symbol("builtins.dict", instance=_namespace(module.target))
