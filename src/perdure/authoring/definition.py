"""What a decorator makes of a function: a named definition whose calls are lazy."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, update_wrapper
from hashlib import sha256
from textwrap import dedent
from types import FunctionType
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from perdure.authoring.call import Call
from perdure.authoring.signature import Signature
from perdure.authoring.texts import require_text
from perdure.core.codec import Codec
from perdure.core.errors import InputError, NotEncodable
from perdure.core.limits import MAX_NAME_LENGTH

P = ParamSpec("P")
R = TypeVar("R")


class Definition(ABC, Generic[P, R]):
    """A task or a program. `fn` is the plain function; `name` is what the journal calls it."""

    noun: ClassVar[str]
    family: ClassVar[str]
    """Where its name is unique."""
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
        self.fn = fn
        self.name = require_name(self.noun, fn.__name__ if name is None else name)
        self.signature = Signature(fn, given)
        update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        return Call(self, self.pack(args, kwargs))

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of one call, by name. Refuses what could not be stored whole."""
        arguments = self.signature.pack(args, kwargs)
        if self.signature.classes:
            self.signature.require_whole(arguments)
        return arguments

    def __repr__(self) -> str:
        return f"<{self.noun} {self.name!r} ({self.place})>"

    @property
    def place(self) -> str:
        """Where it is written, for people."""
        code = self.fn.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    @property
    def origin(self) -> tuple[str, str]:
        """The file and the qualified name: the same function again, or another one?"""
        return self.fn.__code__.co_filename, self.fn.__qualname__

    @property
    def is_local(self) -> bool:
        """Defined inside a function, and so perhaps many times."""
        return "<locals>" in self.fn.__qualname__

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the source text, or of the compiled code where there is no text."""
        try:
            text = dedent(inspect.getsource(self.fn)).encode()
        except (OSError, TypeError):
            text = self.fn.__code__.co_code
        return sha256(text).hexdigest()

    def pack_result(self, codec: Codec, result: object) -> bytes:
        """What a call returned, as bytes. Refuses what certainly can't be read again as the annotation says."""
        if type(result) in self.signature.contradictions:
            raise NotEncodable(
                f"{self.noun} {self.name!r} returned a value of type {type(result).__qualname__!r}, and its annotation "
                f"says {self.signature.result_text!r}",
                "return what the annotation says, or change the annotation",
            )
        if self.signature.result_classes:
            self.signature.require_whole_result(result)
        return codec.encode(result)

    @abstractmethod
    async def run_outside(self, call: Call[R]) -> R:
        """What awaiting a call does where no workflow runs."""


def _is_method(fn: FunctionType) -> bool:
    """Whether it stands in the body of a class, and is to get the object or the class. A static method is fine."""
    owner = fn.__qualname__.rpartition(".")[0]
    first = fn.__code__.co_varnames[: min(fn.__code__.co_argcount, 1)]
    return bool(owner) and not owner.endswith("<locals>") and first in (("self",), ("cls",))


def require_name(noun: str, name: object, limit: int = MAX_NAME_LENGTH) -> str:
    return require_text(f"the name of a {noun}", name, limit)
