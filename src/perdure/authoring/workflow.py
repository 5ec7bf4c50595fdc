"""Workflows: async functions that survive crashes. They decide; tasks act."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar, overload

from perdure.authoring.limits import Limit, require_limit
from perdure.authoring.linter.checking import LintMode, require_deterministic
from perdure.authoring.parameters import ClassParameters
from perdure.authoring.program import Program
from perdure.authoring.registry import register
from perdure.authoring.texts import require_user_text
from perdure.core.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Program[P, R]):
    """A workflow. A call of it can be started on an engine, or awaited in another workflow."""

    noun: ClassVar[str] = "workflow"

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        name: str | None = None,
        version: str = "",
        lint: LintMode = "error",
        params: type[Any] | None = None,
        limit: Limit | None = None,
    ) -> None:
        super().__init__(fn, name)
        if not inspect.iscoroutinefunction(fn):
            raise InputError(
                f"workflow {self.name!r} is not async", f"write `async def {fn.__name__}(...)`"
            )
        require_deterministic(fn, lint)
        self.version = require_user_text("a version", version, least=0)
        if params is not None:
            self.parameters = ClassParameters(f"the parameters of workflow {self.name!r}", params)
        self.limit = require_limit(limit)
        _ = self.digest  # read the source now: the file may change while the process runs
        register(self)


class WorkflowDecorator(Protocol):
    """`@workflow(...)` with options."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str = "",
    lint: LintMode = "error",
    params: type[Any] | None = None,
    limit: Limit | None = None,
) -> WorkflowDecorator: ...
def workflow(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make an async function a workflow: `@workflow`, or `@workflow(name=..., lint="warn")`.

    A process may have several versions of one `name`: a run keeps the `version` that it began with. `lint` decides
    about code that would not replay (clocks, randomness, I/O, threads): refuse it, warn, or accept it. `params` is a
    class whose fields an operator may change while a run is open: `perdure.params` reads them. A `limit` says how many
    of its runs may be open at a time, and what further starts do.
    """
    if fn is not None:
        return Workflow(fn)
    return lambda function: Workflow(function, **options)
