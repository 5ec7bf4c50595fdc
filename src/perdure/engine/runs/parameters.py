"""The parameters of one run in memory: a fold of its first entry and of the acts that changed them."""

from typing import Any

from perdure.authoring.parameters import DeclaredParameters, given_parameters
from perdure.core.codec import Codec
from perdure.core.errors import NotDecodable
from perdure.core.runs.acts import Code


class RunParameters:
    """The values that a run's start and its operators have given. Defaults hold for the others."""

    def __init__(self, declared: DeclaredParameters, codec: Codec) -> None:
        self._declared = declared
        self._codec = codec
        self.given: dict[str, Any] = {}
        """In their stored form. Never changed in place: a continuation refers to it."""

    def begin(self, payload: bytes | None) -> None:
        """Take the values that the start gave. `payload` is the input."""
        self.given = given_parameters(self._codec, payload)

    def update(self, payload: bytes | None) -> None:
        """Take the values of an accepted act. Without a payload, because it was erased, nothing changes."""
        if payload is not None:
            self.given = {**self.given, **self._codec.decode(payload, dict[str, Any])}

    def refusal(self, payload: bytes | None) -> str | None:
        """The code why an act can't have these values; `None` if it can."""
        try:
            values = self._codec.decode(payload or b"", dict[str, Any])
        except NotDecodable:
            return Code.PARAMETER_MISFIT
        if self._declared.unknown(values) is not None:
            return Code.PARAMETER_UNKNOWN
        try:
            if self._declared.misfit(self._codec, values) is not None:
                return Code.PARAMETER_MISFIT
            self._declared.read(self._codec, {**self.given, **values})
        except Exception:  # the class of the parameters is user code, and checks its values
            return Code.PARAMETER_MISFIT
        return None

    def read(self) -> Any:
        """All parameters as they are now. A new object each time: the program may change what it gets."""
        return self._declared.read(self._codec, self.given)
