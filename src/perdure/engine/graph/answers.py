"""Decodes a step's stored outcome into the answer that a walk starts from, and encodes a run's failure."""

from typing import Any

from perdure.authoring.modules import type_name
from perdure.authoring.response import read_response
from perdure.authoring.values.failures import Failure, decode_failure, encode_failure
from perdure.core.codec import Codec
from perdure.core.errors import PerdureError, ResponseError, RunInterrupted
from perdure.core.graph.step_error import ANY_ERROR, StepError, named_step_error, step_error_from
from perdure.core.graph.transition import StepResponse

TIMEOUT_ERROR = "builtins:TimeoutError"
FIRST_ERROR_CODE = 400
LAST_CODE = 599
RESPONSE_ERROR = "perdure.core.errors:ResponseError"


def returned_answer(codec: Codec, payload: bytes | None) -> StepResponse:
    """The answer of a step that returned; a response with an error code makes it a failure."""
    try:
        value: Any = codec.decode(payload or b"null", object)
    except PerdureError as error:
        return StepResponse(error=step_error_from(error))
    code, data = read_response(value)
    if code >= FIRST_ERROR_CODE:
        named = named_step_error(RESPONSE_ERROR, f"code {code}: {data}")
        return StepResponse(
            data, code, StepError(named.type_name, named.message, named.names, code=code)
        )
    return StepResponse(data, code)


def failed_answer(codec: Codec, payload: bytes | None, what: str, home: str) -> StepResponse:
    """The answer of a step that failed. `home` is the module that defines the graph."""
    error = decode_failure(codec, payload, what=what, home=home)
    step_error = step_error_from(error, payload, _code_of(error), type_name)
    return StepResponse(
        error=step_error, code=step_error.code, is_timeout=TIMEOUT_ERROR in step_error.names
    )


def _code_of(error: Exception) -> int:
    """The status code that an error carries, as Perdure's errors and those of HTTP libraries do; else 500."""
    for code in (getattr(error, "status", None), getattr(error, "code", None)):
        if type(code) is int and FIRST_ERROR_CODE <= code <= LAST_CODE:
            return code
    return 500


def timeout_answer(what: str) -> StepResponse:
    named = named_step_error("TimeoutError", f"{what} was not answered in time")
    step_error = StepError(named.type_name, named.message, named.names, code=408)
    return StepResponse(error=step_error, code=408, is_timeout=True)


def encode_step_error(codec: Codec, step_error: StepError) -> bytes:
    """The failure of a run, encoded so that a client that has the error's class raises it."""
    if step_error.payload is not None:
        return step_error.payload
    if step_error.type_name == RESPONSE_ERROR:
        return encode_failure(codec, ResponseError(step_error.message, status=step_error.code))
    failure = Failure(
        type_name=step_error.type_name,
        message=step_error.message,
        traceback=f"{step_error.type_name.rpartition(':')[2]}: {step_error.message}",
        args=[step_error.message] if ANY_ERROR in step_error.names else [],
    )
    return codec.encode(failure)


def encode_interruption(codec: Codec, reason: str, code: int) -> bytes:
    error = RunInterrupted(reason, f"it was interrupted with code {code}", code)
    return encode_failure(codec, error)
