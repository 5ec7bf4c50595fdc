"""Checks texts that users pass: names, keys, ids, reasons."""

from perdure.core import texts
from perdure.core.errors import InputError
from perdure.core.limits import MAX_NAME_LENGTH


def require_user_text(
    what: str, given: object, limit: int = MAX_NAME_LENGTH, least: int = 1
) -> str:
    """`given`, if it is a text that every store accepts. `limit` is in bytes."""
    if not isinstance(given, str) or len(given) < least:
        raise InputError(f"{given!r} can't be {what}", f"pass a text of {least} to {limit} bytes")
    texts.require_storable_text(what, given, limit)
    return given
