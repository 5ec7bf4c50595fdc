"""A function's parameters: the names under which arguments are stored, and the types as which they are decoded."""

import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from inspect import Parameter
from types import GenericAlias
from typing import (
    Any,
    Never,
    NoReturn,
    ParamSpecArgs,
    ParamSpecKwargs,
    TypeVar,
    TypeVarTuple,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UNSET

from perdure.authoring.values.result_types import impossible_types
from perdure.authoring.values.storable import Unresolved, require_storable_annotation
from perdure.authoring.values.subclasses import Classes, classes_in, require_lossless
from perdure.core.codec import Codec
from perdure.core.errors import InputError

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
BY_KEYWORD = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
CATCH_ALL = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class Signature:
    """Packs and unpacks the arguments and the result of one function.

    Annotations are resolved at first use, because they may name things that are defined later. The engine fills in the
    first `given` parameters: callers don't pass them, and they are not stored.
    """

    def __init__(self, fn: Callable[..., Any], given: int = 0) -> None:
        self._fn = fn
        self._name: str = getattr(fn, "__qualname__", repr(fn))
        bare = signature_without_resolving(fn)
        self._bare = bare.replace(parameters=list(bare.parameters.values())[given:])
        self._parameters = tuple(self._bare.parameters.values())
        self._names = tuple(p.name for p in self._parameters)
        self._positional = tuple(p.name for p in self._parameters if p.kind in POSITIONAL)
        self._by_keyword = frozenset(p.name for p in self._parameters if p.kind in BY_KEYWORD)
        self._required = frozenset(p.name for p in self._parameters if _is_required(p))
        self._defaults = tuple(p.default for p in self._parameters)
        kinds = {p.kind: p.name for p in self._parameters}
        self._catches_many = kinds.get(Parameter.VAR_POSITIONAL)
        self._catches_others = kinds.get(Parameter.VAR_KEYWORD)
        self._all_by_keyword = self._by_keyword.issuperset(self._names)
        # Counts of positional arguments with which a call without keywords is valid.
        self._right_counts = range(0)
        if self._all_by_keyword and self._required.issubset(self._positional):
            self._right_counts = range(len(self._required), len(self._positional) + 1)
        self._all_required_by_position = (
            self._positional == self._names and self._required.issuperset(self._names)
        )

    @property
    def shape(self) -> tuple[tuple[str, Any], ...]:
        """The name and the kind of each parameter, in order."""
        return tuple((p.name, p.kind) for p in self._parameters)

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of one call, by parameter name. Defaults that were not passed are left out.

        The values of `*args` and `**kwargs` are a list and a dict under their own names. Raises a TypeError that names
        the function if Python would refuse the call.
        """
        if not kwargs and len(args) in self._right_counts:
            return dict(zip(self._positional, args, strict=False))
        if self._all_by_keyword:
            # A superfluous argument is dropped here and a duplicate is merged; the count reveals both.
            packed = dict(zip(self._positional, args, strict=False), **kwargs)
            if len(packed) == len(args) + len(kwargs):
                if self._required <= packed.keys() <= self._by_keyword:
                    return packed
        return self._bound(args, kwargs)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Bind any call as Python does; `inspect.Signature.bind` refuses some calls that Python accepts."""
        packed = dict(zip(self._positional, args, strict=False))
        many = list(args[len(self._positional) :])
        others = {}
        for name, value in kwargs.items():
            if name not in self._by_keyword:
                others[name] = value
            elif name in packed:
                raise TypeError(f"{self._name}() got multiple values for argument {name!r}")
            else:
                packed[name] = value
        if many:
            if self._catches_many is None:
                most = len(self._positional)
                raise TypeError(
                    f"{self._name}() takes {most} positional arguments, not {len(args)}"
                )
            packed[self._catches_many] = many
        for name in self._names:
            if name in self._required and name not in packed:
                raise TypeError(f"{self._name}() is missing the required argument {name!r}")
        if others:
            if self._catches_others is None:
                name = next(iter(others))
                raise TypeError(f"{self._name}() got an unexpected keyword argument {name!r}")
            packed[self._catches_others] = others
        return packed

    def require_whole(self, packed: dict[str, Any]) -> None:
        """Refuse arguments that would lose fields in the store."""
        for name, classes in self.classes.items():
            if name in packed:
                require_lossless(f"argument {name!r} of {self._name}()", packed[name], classes)

    def require_whole_result(self, result: object) -> None:
        """Refuse a result that would lose fields in the store."""
        require_lossless(f"the result of {self._name}()", result, self.result_classes)

    def arguments(self, packed: dict[str, Any]) -> Arguments:
        """The reverse of `pack`: arguments for `fn(*args, **kwargs)`."""
        return self._placed(tuple([packed.get(name, UNSET) for name in self._names]))

    def unpack(self, codec: Codec, payload: bytes) -> Arguments:
        """The stored arguments, decoded by the annotations, for `fn(*args, **kwargs)`.

        A parameter that the payload lacks gets its default. An argument without a parameter is ignored, because the
        code may have dropped the parameter.
        """
        return self._placed(msgspec.structs.astuple(codec.decode(payload, self.stored)))

    def require_decodable(self, codec: Codec, payload: bytes) -> None:
        """Refuse annotations that can't be resolved or stored, and stored arguments that don't match them."""
        _ = self._result
        codec.decode(payload, self.stored)

    def restored(self, codec: Codec, packed: dict[str, Any]) -> dict[str, Any]:
        """Packed arguments after a round trip through the codec."""
        values = msgspec.structs.astuple(codec.decode(codec.encode(packed), self.stored))
        named = zip(self._names, values, strict=True)
        return {name: value for name, value in named if value is not UNSET}

    def completed(self, arguments: Arguments) -> Arguments:
        """The same call with all defaults passed explicitly."""
        args, kwargs = arguments
        call = self._bare.bind(*args, **kwargs)
        call.apply_defaults()
        return call.args, call.kwargs

    def is_same_call(self, codec: Codec, one: bytes, other: bytes) -> bool:
        """Whether two payloads hold the same arguments, with defaults filled in."""
        if one == other:
            return True
        try:
            calls = [
                self._bare.bind(*args, **kwargs)
                for args, kwargs in (self.unpack(codec, one), self.unpack(codec, other))
            ]
        except (InputError, TypeError):
            return False
        for call in calls:
            call.apply_defaults()
        return calls[0].arguments == calls[1].arguments

    def unpack_result(self, codec: Codec, payload: bytes) -> Any:
        """The stored result, decoded by the return annotation."""
        return codec.decode(payload, self._result)

    @cached_property
    def impossible_result_types(self) -> frozenset[type]:
        """Types of results that can't be decoded by the return annotation."""
        return impossible_types(self._result)

    @property
    def result(self) -> Any:
        """The return annotation as which results are decoded."""
        return self._result

    @property
    def result_text(self) -> str:
        """The return annotation, for messages."""
        wanted = self._result
        return wanted.__qualname__ if isinstance(wanted, type) else str(wanted)

    def check(self) -> None:
        """Refuse annotations that can't be resolved or stored now, not at first use."""
        _ = self.stored, self._result

    def check_early(self) -> None:
        """Refuse annotations that can never be stored. Annotations that can't be resolved yet are checked later."""
        with suppress(Unresolved):
            self.check()

    def contradicted(self, packed: dict[str, Any]) -> str | None:
        """The first argument whose type contradicts its annotation."""
        for name, kinds in self._impossible_argument_types.items():
            if type(packed.get(name, UNSET)) in kinds:
                return name
        return None

    @cached_property
    def _impossible_argument_types(self) -> dict[str, frozenset[type]]:
        """The types that contradict the annotation, by parameter."""
        try:
            hints = {
                p.name: _stored_type(p, self._hints.get(p.name, Any)) for p in self._parameters
            }
            found = {name: impossible_types(hint) for name, hint in hints.items()}
        except InputError:  # raised when the arguments are decoded
            return {}
        return {name: kinds for name, kinds in found.items() if kinds}

    def _placed(self, values: tuple[Any, ...]) -> Arguments:
        """Positional and keyword arguments from `values` in the order of the parameters, UNSET where one is missing."""
        if self._all_required_by_position:
            return values, {}
        count = len(self._positional)
        caught: Sequence[Any] = ()
        kwargs: dict[str, Any] = {}
        for name, value in zip(self._names[count:], values[count:], strict=True):
            if value is UNSET:
                continue
            if name == self._catches_many:
                caught = value
            elif name == self._catches_others:
                kwargs.update(value)
            else:
                kwargs[name] = value
        if not caught:
            while count and values[count - 1] is UNSET:
                count -= 1
        # Defaults fill gaps, so that later positional arguments keep their positions.
        args = [
            default if value is UNSET else value
            for value, default in zip(values[:count], self._defaults, strict=False)
        ]
        return (*args, *caught), kwargs

    @cached_property
    def stored(self) -> type[msgspec.Struct]:
        """A struct with one field for each parameter.

        The fields are numbered, because a parameter may have a name that a struct field can't have.
        """
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for index, parameter in enumerate(self._parameters):
            wanted = _stored_type(parameter, self._hints.get(parameter.name, Any))
            require_storable_annotation(f"parameter {parameter.name!r} of {self._name}()", wanted)
            if parameter.name in self._required:
                fields.append((f"p{index}", wanted))
            else:
                fields.append((f"p{index}", wanted, UNSET))
        names = {f"p{index}": parameter.name for index, parameter in enumerate(self._parameters)}
        return msgspec.defstruct(f"call of {self._name}()", fields, rename=names, kw_only=True)

    @cached_property
    def classes(self) -> dict[str, Classes]:
        """Classes with fields in the annotations, by parameter."""
        try:
            hints = {p.name: self._hints.get(p.name) for p in self._parameters}
        except InputError:  # raised when the arguments are stored
            return {}
        return {name: found for name, hint in hints.items() if (found := classes_in(hint))}

    @cached_property
    def result_classes(self) -> Classes:
        try:
            return classes_in(self._result)
        except InputError:  # raised when the result is decoded
            return ()

    @cached_property
    def _result(self) -> Any:
        wanted = self._hints.get("return", Any)
        if get_origin(wanted) in (Awaitable, Coroutine):
            wanted = get_args(wanted)[-1]
        wanted = _any_if_open(wanted)
        require_storable_annotation(f"the result of {self._name}()", wanted)
        return wanted

    @cached_property
    def _hints(self) -> dict[str, Any]:
        source = inspect.unwrap(self._fn)
        try:
            return get_type_hints(source, localns=_names_inside(source), include_extras=True)
        except Exception as error:  # an annotation is an expression: it may raise anything
            raise Unresolved(
                f"the annotation of {self._unresolvable(source)} can't be resolved ({error})",
                "define or import what it names at module level, or leave the annotation out",
            ) from error

    def _unresolvable(self, source: Callable[..., Any]) -> str:
        """The first parameter, or the result, whose annotation can't be resolved, for messages."""

        for what, annotation in self._annotations():
            try:
                resolved(source, annotation)
            except Exception:  # as above
                return f"{what} of {self._name}()"
        return f"{self._name}()"

    def _annotations(self) -> Iterator[tuple[str, Any]]:
        for parameter in self._parameters:
            if parameter.annotation is not Parameter.empty:
                yield f"parameter {parameter.name!r}", parameter.annotation
        if self._bare.return_annotation is not Parameter.empty:
            yield "the result", self._bare.return_annotation


def resolved(fn: Callable[..., Any], annotation: Any) -> Any:
    """The type that an annotation of `fn` names, without `Annotated` extras. Runs user code: may raise anything."""

    def alone() -> None: ...

    alone.__annotations__ = {"annotation": annotation}
    names = getattr(fn, "__globals__", {})
    return get_type_hints(alone, names, _names_inside(fn))["annotation"]


def signature_without_resolving(fn: Callable[..., Any]) -> inspect.Signature:
    """The parameters of `fn`, with unresolved annotations: texts or forward references."""
    try:
        if sys.version_info >= (3, 14):
            from annotationlib import Format  # noqa: PLC0415 - older Pythons do not have it

            return inspect.signature(fn, annotation_format=Format.FORWARDREF)
        return inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise InputError(f"{fn!r} has no readable signature", "wrap it in a function") from error


def _is_required(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty and parameter.kind not in CATCH_ALL


def _names_inside(fn: Callable[..., Any]) -> dict[str, Any]:
    """The names besides globals that annotations of `fn` may use: its type parameters and closure."""
    names = {parameter.__name__: parameter for parameter in getattr(fn, "__type_params__", ())}
    code = getattr(fn, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), _cells(fn), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # empty: the enclosing function has not assigned it yet
            continue
    return names


def _cells(fn: Callable[..., Any]) -> tuple[Any, ...]:
    return getattr(fn, "__closure__", None) or ()


def _stored_type(parameter: Parameter, hint: Any) -> Any:
    """The type that `parameter` has in a payload."""
    if parameter.kind not in CATCH_ALL:
        return _any_if_open(hint)
    if getattr(hint, "__unpacked__", False):  # *args: *tuple[int, str]
        return GenericAlias(tuple, get_args(hint))
    if get_origin(hint) is Unpack:
        (hint,) = get_args(hint)
        if not isinstance(hint, TypeVarTuple):  # **kwargs: Unpack[Options]
            return hint
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return GenericAlias(list, (_any_if_open(hint),))
    return GenericAlias(dict, (str, _any_if_open(hint)))


def _any_if_open(hint: Any) -> Any:
    """Any instead of a type variable, and of the result type of a function that never returns."""
    if isinstance(hint, TypeVar | TypeVarTuple | ParamSpecArgs | ParamSpecKwargs):
        return Any
    return Any if hint is Never or hint is NoReturn else hint
