"""What becomes of a step in doubt: `on_doubt="retry"`, `"fail"`, or a function that finds out what happened."""

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any, Literal, TypeAlias

from perdure.authoring.definition import Definition
from perdure.authoring.signature import POSITIONAL, Arguments, Signature
from perdure.core.errors import InputError
from perdure.core.replay.doubt import Resolution

DoubtPolicy = Literal["retry", "fail"]
OnDoubt: TypeAlias = DoubtPolicy | Callable[..., Any]


class Reconcile:
    """A function that takes the key of a step and returns the step's result, or raises `NotDone`.

    It takes the key alone, or the key and all parameters of the task.
    """

    def __init__(self, fn: Callable[..., Any], task: Definition[..., Any]) -> None:
        if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
            raise InputError(f"on_doubt of {task!r} is a generator", "return one value")
        self.fn = fn
        self.is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
            getattr(fn, "__call__", None)  # noqa: B004 - of an object that is called like a function
        )
        self._signature = task.signature
        own = Signature(fn).shape
        self._takes_arguments = len(own) > 1
        takes_key = bool(own) and own[0][1] in POSITIONAL
        if not takes_key or (self._takes_arguments and own[1:] != task.signature.shape):
            raise InputError(
                f"on_doubt of {task!r} takes {_spelled(own)}",
                f"let it take {_spelled([_key(task)])} alone, "
                f"or {_spelled([_key(task), *task.signature.shape])} as the task does",
            )

    def arguments(self, key: str, given: Arguments) -> Arguments:
        """The arguments to call the function with, for a step with the arguments `given`."""
        if not self._takes_arguments:
            return (key,), {}
        args, kwargs = self._signature.completed(given)
        return (key, *args), kwargs


def policy_of(on_doubt: object) -> Resolution:
    """The resolution that the option stands for. Raises `InputError` for any other value."""
    if isinstance(on_doubt, Definition):
        raise InputError(
            f"on_doubt is {on_doubt!r}", f"pass its function: {on_doubt.fn.__name__}.fn"
        )
    if callable(on_doubt):
        return Resolution.RECONCILE
    if on_doubt in ("retry", "fail"):
        return Resolution(on_doubt)
    raise InputError(f"on_doubt is {on_doubt!r}", "pass 'retry', 'fail' or a function")


def _key(task: Definition[..., Any]) -> tuple[str, Any]:
    shape = task.signature.shape
    is_strict = bool(shape) and shape[0][1] is Parameter.POSITIONAL_ONLY
    name = "step_key" if "key" in dict(shape) else "key"
    return name, Parameter.POSITIONAL_ONLY if is_strict else Parameter.POSITIONAL_OR_KEYWORD


def _spelled(shape: Any) -> str:
    return str(inspect.Signature([Parameter(name, kind) for name, kind in shape]))
