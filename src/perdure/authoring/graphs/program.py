"""Graph programs: a checked graph that engines can run."""

import inspect
from collections.abc import Callable, Iterable
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from perdure.authoring.limits import Limit, require_limit
from perdure.authoring.parameters import STORED_AS, FieldParameters, given_parameters
from perdure.authoring.program import Program, ProgramCall
from perdure.authoring.registry import find, register, registered_names
from perdure.authoring.signature import Arguments
from perdure.authoring.texts import require_user_text
from perdure.core.codec import Codec
from perdure.core.errors import InputError
from perdure.core.graph.canonical import ordered
from perdure.core.graph.checking import invalid, problems_of
from perdure.core.graph.expansion import expand
from perdure.core.graph.inputs import input_faults
from perdure.core.graph.lowering import lower
from perdure.core.graph.model import FieldType, Graph, WorkerNode
from perdure.core.graph.vertex import Lowered

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar  # type checkers bring it along

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

_TYPES: Final[dict[str, Any]] = {
    "any": Any,
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "dict": dict,
    "none": None,
}
_encode = msgspec.json.Encoder().encode


class GraphProgram(Program[P, R]):
    """A graph. `model` is the graph with its calls of other graphs expanded. The digest covers the model, not where it
    was written."""

    noun: ClassVar[str] = "graph"

    def __init__(
        self,
        model: Graph,
        fn: Callable[P, Any] | None = None,
        *,
        is_registered: bool = True,
        limit: Limit | None = None,
    ) -> None:
        """A `limit` says how many runs of the graph may be open at a time, and what further starts do."""
        if is_registered:
            model = _checked(model, registered_names(self.family))
        super().__init__(_stand_in(model) if fn is None else fn, model.name)
        self.model = model
        if model.params is not None:
            self.parameters = FieldParameters(model.params)
        self.version = require_user_text("a version", model.version, least=0)
        self.limit = require_limit(limit)
        self._is_written_as_function = fn is not None
        if is_registered:
            register(self)

    @cached_property
    def lowered(self) -> Lowered:
        """The executable form of the graph."""
        return lower(self.model)

    @cached_property
    def content(self) -> bytes:
        """The deployed form of the model."""
        return content_of(self.model)

    @cached_property
    def digest(self) -> str:
        return sha256(self.content).hexdigest()

    @cached_property
    def tasks(self) -> frozenset[str]:
        """Names of the tasks that it calls, except computed ones."""
        workers = (node for node in self.model.nodes if isinstance(node, WorkerNode))
        return frozenset(node.task for node in workers if node.task)

    @property
    def place(self) -> str:
        return super().place if self._is_written_as_function else self.model.source or "a graph"

    @property
    def origin(self) -> tuple[str, str]:
        return super().origin if self._is_written_as_function else ("", self.digest)

    def scope(self, codec: Codec, payload: bytes) -> dict[str, Any]:
        """The initial variables of a run: the fields of its input, and `input` with all of them."""
        given = codec.decode(payload, dict[str, Any])
        if self.parameters is not None:
            given.pop(STORED_AS, None)
        fields = self.model.input
        if fields is not None:
            faults = input_faults(fields, given)
            if faults:
                raise InputError(
                    f"graph {self.name!r} can't begin with this input: {'; '.join(faults)}",
                    "pass every field that is required, each of its type, and no others",
                )
            given = {name: given.get(name, field.default) for name, field in fields.items()}
        return {**given, "input": given}

    def check_input(self, codec: Codec, payload: bytes) -> None:
        self.scope(codec, payload)

    def call_arguments(self, codec: Codec, payload: bytes) -> Arguments:
        fields = dict(self.scope(codec, payload))
        del fields["input"]
        return (), fields

    def is_same_call(self, codec: Codec, one: bytes, other: bytes) -> bool:
        if one == other:
            return True
        try:
            is_same = self.scope(codec, one) == self.scope(codec, other)
            return is_same and given_parameters(codec, one) == given_parameters(codec, other)
        except InputError:
            return False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ProgramCall[R]:
        if self.model.input is None and not self._is_written_as_function and not args:
            return ProgramCall(self, dict(kwargs))  # without a schema, any fields are the input
        return super().__call__(*args, **kwargs)


def content_of(graph: Graph) -> bytes:
    """The stored form of a graph. Equal graphs have equal content."""
    return _encode(msgspec.structs.replace(ordered(graph), source=""))


def registered_graph(name: str) -> Graph | None:
    """The graph of that name in this process, if any."""
    found = find(GraphProgram.family, name)
    return found.model if isinstance(found, GraphProgram) else None


def _checked(model: Graph, known: Iterable[str]) -> Graph:
    """The graph with its calls of other graphs expanded. `GraphInvalid` lists all problems."""
    problems = problems_of(model)
    if problems:
        raise invalid(model.name, problems)
    return expand(model, registered_graph, known)


def deployed_program(content: bytes) -> GraphProgram[..., Any]:
    """The program that was deployed as `content`. It is not registered."""
    return GraphProgram(msgspec.json.decode(content, type=Graph), is_registered=False)


def _stand_in(model: Graph) -> Callable[..., Any]:
    """A function with the graph's input as parameters. Calls are checked against it; it is never run."""

    async def run(**given: Any) -> Any:  # noqa: ARG001 - they are only checked
        raise InputError(f"graph {model.name!r} is data", "start it on an engine")

    fields = model.input
    if fields is not None:
        parameters = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.required else field.default,
                annotation=_annotation(field),
            )
            for name, field in fields.items()
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__name__ = run.__qualname__ = model.name
    return run


def _annotation(field: FieldType) -> Any:
    kind = _TYPES[field.type]
    return kind if field.required or field.default is not None or kind is Any else kind | None
