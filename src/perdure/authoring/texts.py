"""Texts that users give: names, keys, ids, reasons."""

from perdure.core import texts
from perdure.core.errors import InputError
from perdure.core.limits import MAX_NAME_LENGTH


def require_text(what: str, given: object, limit: int = MAX_NAME_LENGTH, least: int = 1) -> str:
    """The text, if it is one that a store can keep. `limit` is in bytes."""
    if not isinstance(given, str) or len(given) < least:
        raise InputError(f"{given!r} can't be {what}", f"pass a text of {least} to {limit} bytes")
    texts.require_text(what, given, limit)
    return given
