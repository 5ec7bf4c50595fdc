"""Responses: what a task or a signal may answer with beside a value, a code that says how it is meant."""

from typing import Any, Final

import msgspec

from perdure.core.errors import InputError

TAG: Final = "$perdure"
OK: Final = 200
PENDING: Final = 202


class Response(msgspec.Struct, frozen=True, tag_field=TAG, tag="response"):
    """An answer with a code, for a graph: 200 is what a plain value is; 202 says that more will come, and the
    step stays; 400 and above is an error, which goes along the edges for it."""

    data: Any = None
    code: int = OK

    def __post_init__(self) -> None:
        if type(self.code) is not int or not 200 <= self.code <= 599:
            raise InputError(f"a response with code {self.code!r}", "use 200 to 599, as HTTP does")


def read_response(value: Any) -> tuple[int, Any]:
    """Code and data of a stored answer."""
    if isinstance(value, dict) and value.get(TAG) == "response":
        code = value.get("code", OK)
        return (code if type(code) is int else OK), value.get("data")
    return OK, value
