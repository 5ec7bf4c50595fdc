"""Programs: what a run executes. A workflow is one, a graph another."""

from typing import Any, ClassVar, ParamSpec, TypeVar

from perdure.authoring.call import Call
from perdure.authoring.definition import Definition
from perdure.authoring.limits import Limit
from perdure.authoring.signature import Arguments
from perdure.core.codec import Codec
from perdure.core.errors import InputError, NotDecodable, OutsideRun

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ProgramCall(Call[R_co]):
    """A call of a program. An engine can start it, unlike a call of a task."""

    __slots__ = ()

    definition: "Program[..., Any]"


class Program(Definition[P, R]):
    """A workflow or a graph. A call of it can be started on an engine, or awaited in a run as a child run."""

    family: ClassVar[str] = "program"
    limit: Limit | None = None
    """The limit on its runs, if it declares one."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ProgramCall[R]:
        return ProgramCall(self, self.pack(args, kwargs))

    def check_input(self, codec: Codec, payload: bytes) -> None:
        """Refuse arguments that don't match the annotations, before a run is started with them."""
        try:
            self.signature.require_decodable(codec, payload)
        except NotDecodable as error:
            raise InputError(
                f"{self.noun} {self.name!r} can't begin with these arguments: {error.what}",
                "pass arguments of the types that its annotations say",
            ) from error

    def call_arguments(self, codec: Codec, payload: bytes) -> Arguments:
        """Stored arguments as the program gets them, with defaults filled in."""
        return self.signature.completed(self.signature.unpack(codec, payload))

    def is_same_call(self, codec: Codec, one: bytes, other: bytes) -> bool:
        """Whether two payloads hold the same arguments, with defaults filled in."""
        return self.signature.is_same_call(codec, one, other)

    async def run_outside(self, call: Call[R]) -> R:  # noqa: ARG002 - refused, whatever it is
        raise OutsideRun(
            f"{self.noun} {self.name!r} is awaited outside a run",
            "start it with `engine.start(...)` or `perdure.run(...)`",
        )
