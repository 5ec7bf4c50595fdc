"""Responses: values with a status code, which tasks and signals return to a graph."""

from typing import Any, Final

import msgspec

from perdure.core.errors import InputError

TAG: Final = "$perdure"
OK: Final = 200
PENDING: Final = 202


class Response(msgspec.Struct, frozen=True, tag_field=TAG, tag="response"):
    """A value with a status code, for a graph. 200 is the code of a plain value; 202 announces more responses and keeps
    the step open; 400 and above is an error, and follows the error edges."""

    data: Any = None
    code: int = OK

    def __post_init__(self) -> None:
        if type(self.code) is not int or not 200 <= self.code <= 599:
            raise InputError(f"a response with code {self.code!r}", "use 200 to 599, as HTTP does")


def read_response(value: Any) -> tuple[int, Any]:
    """Code and data of a stored response; a plain value has code 200."""
    if isinstance(value, dict) and value.get(TAG) == "response":
        code = value.get("code", OK)
        return (code if type(code) is int else OK), value.get("data")
    return OK, value
