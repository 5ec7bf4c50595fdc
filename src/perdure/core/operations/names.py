"""Ids of operations, participants and calls.

An operation's id is part of file names, so an id that could leave its directory is refused.
"""

import re

from perdure.core.errors import InputError, InvalidId
from perdure.core.operations.data import wall_time

_OPERATION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,179}")
_PARTICIPANT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def new_operation_id(participant_id: str, now_ms: int, entropy: bytes) -> str:
    """`20260122T14:30:45.123-cli-a1b2c3d4`: ids made later sort later."""
    at = wall_time(now_ms)
    stamp = f"{at:%Y%m%dT%H:%M:%S}.{at.microsecond // 1000:03}"
    return f"{stamp}-{participant_id}-{entropy[:4].hex()}"


def new_call_id(participant_id: str, number: int, entropy: bytes) -> str:
    """`call_cli_1_a1b2c3d4`."""
    return f"call_{participant_id}_{number}_{entropy[:4].hex()}"


def require_words(what: str, text: object) -> None:
    """Refuse values other than UTF-8 text and `None`."""
    if text is None:
        return
    if not isinstance(text, str):
        raise InputError(f"{what} is {text!r:.200}", "pass text, or None")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} {text!a:.200} has no UTF-8 form ({error})", "take out the lone surrogates"
        ) from error


def is_operation_id(text: str) -> bool:
    return _OPERATION.fullmatch(text) is not None


def require_operation_id(text: object) -> str:
    if not isinstance(text, str) or not is_operation_id(text):
        raise InvalidId(
            f"{text!r:.200} is not the id of an operation",
            "pass what `create_operation` made: letters, digits and . _ : - only, at most 180",
        )
    return text


def require_participant_id(text: object) -> str:
    if not isinstance(text, str) or not _PARTICIPANT.fullmatch(text):
        raise InvalidId(
            f"{text!r:.200} is not a participant id",
            "use letters, digits and . _ - only, at most 64, and no dot or dash at the beginning",
        )
    return text
