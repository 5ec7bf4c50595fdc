"""Programs: what a run executes. A workflow is one, a graph another."""

from typing import ClassVar, ParamSpec, TypeVar

from perdure.authoring.call import Call
from perdure.authoring.definition import Definition
from perdure.core.codec import Codec
from perdure.core.errors import OutsideRun

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ProgramCall(Call[R_co]):
    """A call of a program. An engine can start it; a task's call it can't."""

    __slots__ = ()


class Program(Definition[P, R]):
    """A workflow or a graph. A call of it can be started on an engine, or awaited in a run as a child."""

    family: ClassVar[str] = "program"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ProgramCall[R]:
        return ProgramCall(self, self.pack(args, kwargs))

    def check_input(self, codec: Codec, payload: bytes) -> None:
        """Refuse what no run can begin with, as far as that is known before."""

    def is_same_call(self, codec: Codec, one: bytes, other: bytes) -> bool:
        """Whether two payloads are the same arguments, given or left to their defaults."""
        return self.signature.is_same_call(codec, one, other)

    async def run_outside(self, call: Call[R]) -> R:  # noqa: ARG002 - refused, whatever it is
        raise OutsideRun(
            f"{self.noun} {self.name!r} is awaited outside a run",
            "start it with `engine.start(...)` or `perdure.run(...)`",
        )
