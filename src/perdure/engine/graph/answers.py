"""What a step answered: stored bytes as the answer that a walk goes on with."""

from typing import Any

from perdure.authoring.failures import Failure, decode_failure, encode_failure
from perdure.authoring.response import read_response
from perdure.core.codec import Codec
from perdure.core.errors import PerdureError, ResponseError, RunInterrupted
from perdure.core.graph.trouble import ANY_ERROR, Trouble, named_trouble, trouble_of
from perdure.core.graph.walk import Answer

TIMEOUT_ERROR = "builtins:TimeoutError"
FIRST_ERROR_CODE = 400
LAST_CODE = 599
RESPONSE_ERROR = "perdure.core.errors:ResponseError"


def answer_of(codec: Codec, payload: bytes | None) -> Answer:
    """The answer of a step that ended well; its response may say otherwise."""
    try:
        value: Any = codec.decode(payload or b"null", object)
    except PerdureError as error:
        return Answer(trouble=trouble_of(error))
    code, data = read_response(value)
    if code >= FIRST_ERROR_CODE:
        named = named_trouble(RESPONSE_ERROR, f"code {code}: {data}")
        return Answer(data, code, Trouble(named.type_name, named.message, named.names, code=code))
    return Answer(data, code)


def failure_of(codec: Codec, payload: bytes | None, what: str) -> Answer:
    """The answer of a step that failed."""
    error = decode_failure(codec, payload, what=what)
    trouble = trouble_of(error, payload, _code_of(error))
    return Answer(trouble=trouble, code=trouble.code, is_timeout=TIMEOUT_ERROR in trouble.names)


def _code_of(error: Exception) -> int:
    """What an error says of itself: as Perdure's own do, or as those of HTTP libraries do."""
    for said in (getattr(error, "status", None), getattr(error, "code", None)):
        if type(said) is int and FIRST_ERROR_CODE <= said <= LAST_CODE:
            return said
    return 500


def timed_out(what: str) -> Answer:
    named = named_trouble("TimeoutError", f"{what} was not answered in time")
    trouble = Trouble(named.type_name, named.message, named.names, code=408)
    return Answer(trouble=trouble, code=408, is_timeout=True)


def encode_trouble(codec: Codec, trouble: Trouble) -> bytes:
    """The failure of a run, so that a client raises the same error where it has it."""
    if trouble.payload is not None:
        return trouble.payload
    if trouble.type_name == RESPONSE_ERROR:
        return encode_failure(codec, ResponseError(trouble.message, status=trouble.code))
    failure = Failure(
        type_name=trouble.type_name,
        message=trouble.message,
        traceback=f"{trouble.type_name.rpartition(':')[2]}: {trouble.message}",
        args=[trouble.message] if ANY_ERROR in trouble.names else [],
    )
    return codec.encode(failure)


def interruption(codec: Codec, reason: str, code: int) -> bytes:
    error = RunInterrupted(reason, f"it was interrupted with code {code}", code)
    return encode_failure(codec, error)
