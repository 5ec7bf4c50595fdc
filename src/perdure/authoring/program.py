"""Programs: what a run executes. A workflow is one, a graph another."""

from collections.abc import Mapping
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

from perdure.authoring.call import Call, discard
from perdure.authoring.definition import Definition
from perdure.authoring.limits import Limit
from perdure.authoring.parameters import STORED_AS, DeclaredParameters, given_parameters
from perdure.authoring.signature import Arguments
from perdure.core.codec import Codec, JsonCodec
from perdure.core.errors import InputError, NotDecodable, OutsideRun

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_codec = JsonCodec()


class ProgramCall(Call[R_co]):
    """A call of a program. An engine can start it, unlike a call of a task."""

    __slots__ = ()

    definition: "Program[..., Any]"

    def with_params(self, values: Mapping[str, Any]) -> Self:
        """Let the run begin with these values of its parameters. The others have their defaults."""
        program = self.definition
        what = f"the parameters of {program.noun} {program.name!r}"
        try:
            if program.parameters is None:
                raise InputError(
                    f"{what} are set, and it declares none", "declare them: params=..."
                )
            if STORED_AS in self.arguments:
                raise InputError(f"{what} are set twice", "pass all values at once")
            self.arguments[STORED_AS] = program.parameters.require(_codec, what, values)
        except BaseException:
            discard(self)
            raise
        return self


class Program(Definition[P, R]):
    """A workflow or a graph. A call of it can be started on an engine, or awaited in a run as a child run."""

    family: ClassVar[str] = "program"
    parameters: DeclaredParameters | None = None
    """What operators may change while a run is open; `None` if the program declares nothing."""
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
        """Whether two payloads hold the same arguments, with defaults filled in, and the same parameters."""
        is_same = self.signature.is_same_call(codec, one, other)
        if self.parameters is None or one == other:
            return is_same
        return is_same and given_parameters(codec, one) == given_parameters(codec, other)

    async def run_outside(self, call: Call[R]) -> R:  # noqa: ARG002 - refused, whatever it is
        raise OutsideRun(
            f"{self.noun} {self.name!r} is awaited outside a run",
            "start it with `engine.start(...)` or `perdure.run(...)`",
        )
