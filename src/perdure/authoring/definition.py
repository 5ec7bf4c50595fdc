"""Definitions: what `@task`, `@workflow` and `@graph` turn a function into. Calling one returns a lazy `Call`."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, update_wrapper
from hashlib import sha256
from textwrap import dedent
from types import FunctionType
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from perdure.authoring.call import Call
from perdure.authoring.modules import origin_of
from perdure.authoring.signature import Signature
from perdure.authoring.texts import require_user_text
from perdure.core.codec import Codec, encode_named
from perdure.core.errors import InputError, NotEncodable
from perdure.core.limits import MAX_NAME_LENGTH

P = ParamSpec("P")
R = TypeVar("R")


class Definition(ABC, Generic[P, R]):
    """A task or a program. `fn` is the plain function; `name` is what the journal calls it."""

    noun: ClassVar[str]
    family: ClassVar[str]
    """The namespace in which its name is unique."""
    version: str = ""
    """Only programs have versions."""

    def __init__(self, fn: Callable[P, Any], name: str | None, *, given: int = 0) -> None:
        if not inspect.isfunction(fn):
            raise InputError(f"{fn!r} is not a function", f"put @{self.noun} on a plain function")
        if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
            raise InputError(
                f"{fn.__qualname__} is a generator", f"a {self.noun} returns one value: use return"
            )
        if _is_method(fn):
            raise InputError(
                f"{fn.__qualname__} is a method, and a {self.noun} is a function",
                "define it outside the class, and pass it what it needs as arguments",
            )
        self.fn: FunctionType = fn
        self.name = require_name(self.noun, fn.__name__ if name is None else name)
        self.signature = Signature(fn, given)
        self.signature.check_early()
        update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        return Call(self, self.pack(args, kwargs))

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of one call, by name. Refuses values that would lose fields in the store."""
        arguments = self.signature.pack(args, kwargs)
        if self.signature.classes:
            self.signature.require_whole(arguments)
        return arguments

    def __repr__(self) -> str:
        return f"<{self.noun} {self.name!r} ({self.place})>"

    @property
    def place(self) -> str:
        """File and line of the function, for messages."""
        code = self.fn.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    @property
    def origin(self) -> tuple[str, str]:
        """File and qualified name: equal if a module or notebook cell defines the same function again."""
        return origin_of(self.fn)

    @property
    def is_local(self) -> bool:
        """Whether it is defined inside a function, and so may be defined many times."""
        return "<locals>" in self.fn.__qualname__

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the source text, or of the compiled code if the source is not available."""
        try:
            text = dedent(inspect.getsource(self.fn)).encode()
        except (OSError, TypeError):
            text = self.fn.__code__.co_code
        return sha256(text).hexdigest()

    def pack_result(self, codec: Codec, result: object, name: Callable[[], str]) -> bytes:
        """The payload of a call's result. Refuses a result whose type contradicts the annotation.

        Messages of errors begin with `name()`.
        """
        if type(result) in self.signature.impossible_result_types:
            raise NotEncodable(
                f"{name()} is of type {type(result).__qualname__!r}, and its annotation says"
                f" {self.signature.result_text!r}",
                "return what the annotation says, or change the annotation",
            )
        if self.signature.result_classes:
            self.signature.require_whole_result(result)
        return encode_named(codec, result, name)

    @abstractmethod
    async def run_outside(self, call: Call[R]) -> R:
        """Execute a call that is awaited outside a workflow, or refuse it."""


def _is_method(fn: FunctionType) -> bool:
    """Whether `fn` is defined in a class and takes `self` or `cls`. A static method is none."""
    owner = fn.__qualname__.rpartition(".")[0]
    first = fn.__code__.co_varnames[: min(fn.__code__.co_argcount, 1)]
    return bool(owner) and not owner.endswith("<locals>") and first in (("self",), ("cls",))


def require_name(noun: str, name: object, limit: int = MAX_NAME_LENGTH) -> str:
    return require_user_text(f"the name of a {noun}", name, limit)
