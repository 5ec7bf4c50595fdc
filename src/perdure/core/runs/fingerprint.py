"""Errors of steps and runs as operators see them: code, message, fingerprint, and the step that caused a failure.

Two errors have the same fingerprint if they differ only in ids, numbers and addresses: so 412 failed runs show as one
cause. The fingerprint does not depend on the run, the host or the version of the code.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import msgspec

from perdure.core import errors
from perdure.core.codec import Codec
from perdure.core.errors import NotDecodable, PerdureError
from perdure.core.ids import StepId
from perdure.core.journal import events as e

FINGERPRINT_DIGITS: Final = 16

_OWN_MODULE: Final = "perdure.core.errors"

_VARYING: Final = re.compile(
    r"""
    [0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}  # UUID
  | \b[rm]_[0-9a-f]{32}(?:_[0-9a-f]{32})?                 # run and message ids
  | \b0[xX][0-9a-fA-F]+                                    # addresses
  | \b(?=[0-9a-f]*[0-9])[0-9a-f]{12,}\b                    # digests
  | [0-9]+(?:[.,:][0-9]+)*                                 # numbers, times, IP addresses
    """,
    re.VERBOSE,
)
_SPACE: Final = re.compile(r"\s+")


class ErrorText(msgspec.Struct, frozen=True, rename={"type_name": "type"}):
    """What every stored error has; `type_name` is `module:Class`."""

    type_name: str
    message: str = ""

    @property
    def code(self) -> str:
        """The stable code of one of Perdure's own errors; of any other exception, the name of its class."""
        module, _, name = self.type_name.rpartition(":")
        if module == _OWN_MODULE or module.startswith(f"{_OWN_MODULE}."):
            own = getattr(errors, name, None)
            if isinstance(own, type) and issubclass(own, PerdureError):
                return own.code
        return name if module in ("", "builtins") else f"{module}.{name}"

    @property
    def fingerprint(self) -> str:
        """The same for errors that have one cause, as far as their type and text show it."""
        text = f"{self.type_name}\n{normalized(self.message)}"
        return sha256(text.encode(errors="surrogatepass")).hexdigest()[:FINGERPRINT_DIGITS]


def normalized(message: str) -> str:
    """The message with `#` in place of each id, number and address, and with single spaces."""
    return _SPACE.sub(" ", _VARYING.sub("#", message)).strip()


def error_text(codec: Codec, payload: bytes | None) -> ErrorText | None:
    """The text of a stored error; `None` if it was erased or can't be read."""
    if payload is None:
        return None
    try:
        return codec.decode(payload, ErrorText)
    except NotDecodable:
        return None


def root_cause(events: Iterable[e.Event], codec: Codec) -> tuple[StepId | None, ErrorText] | None:
    """Why a run failed: the first failed step with the error that the run ended with, and that error.

    The step is `None` if the error is the program's own. `None` if the run has not failed, or its error is erased.
    """
    failed: dict[tuple[str, str], StepId] = {}
    for event in events:
        match event:
            case e.InvokeCompleted(ok=False, payload=payload, promise_id=step):
                error = error_text(codec, payload)
                if error is not None:
                    failed.setdefault((error.type_name, error.message), step)
            case e.ExecutionFailed(payload=payload):
                error = error_text(codec, payload)
                if error is None:
                    return None
                return failed.get((error.type_name, error.message)), error
            case _:
                pass
    return None
