"""References to secrets, and the search for secret values in texts and payloads."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from perdure.core.codec import Codec, JsonCodec
from perdure.core.errors import InputError, NotEncodable, SecretExposed
from perdure.core.limits import MAX_NAME_LENGTH, MAX_PAYLOAD_BYTES

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")

MIN_LENGTH: Final = 4
"""Characters of a secret. A shorter one would be found in texts that do not hold it."""

MIN_LINE: Final = 8
"""Characters of a line of a secret that is searched for alone: a traceback may indent lines."""

MAX_KNOWN: Final = 1000
"""Values that are searched for. Beyond it the oldest is forgotten: tokens that are renewed would add up."""

_ANY_SIZE: Final = 1 << 62


class SecretRef(msgspec.Struct, frozen=True, rename={"name": "secret"}):
    """Names a secret. Pass it as an input; in a task, `await perdure.secret(ref)` gives the value."""

    name: str

    def __post_init__(self) -> None:
        require_secret_name(self.name)


def require_secret_name(name: object) -> str:
    if not isinstance(name, str) or len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r:.80} can't be the name of a secret",
            "use letters, digits, '-', '_' and '.', and do not begin with '.'",
        )
    return name


class RevealedSecrets:
    """The secret values that tasks of this process have read. Any thread may use it."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._forms: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def add(self, value: str, name: str) -> None:
        """Search for this value from now on."""
        if value in self._names:
            return
        names = {**self._names, value: name}
        while len(names) > MAX_KNOWN:
            del names[next(iter(names))]
        forms = {form: whose for each, whose in names.items() for form in _forms_of(each)}
        # The longest first: one secret may begin with another.
        texts = map(re.escape, sorted(forms, key=len, reverse=True))
        self._names, self._forms = names, forms
        self._pattern = re.compile("|".join(texts))

    def masked(self, text: str) -> str:
        """The text with the name of a secret in the place of its value."""
        pattern, forms = self._pattern, self._forms
        if pattern is None:
            return text
        return pattern.sub(lambda found: f"[secret {forms.get(found[0], '')}]", text)

    def found_in(self, text: str) -> str | None:
        """The name of a secret whose value the text holds."""
        found = None if self._pattern is None else self._pattern.search(text)
        return None if found is None else self._forms.get(found[0], "")


def _forms_of(value: str) -> Iterator[str]:
    """How a value may be written: as it is, as bytes in JSON, and line by line; each also with escapes."""
    yield from _escaped(value)
    encoded = value.encode()
    yield b64encode(encoded).decode()
    for line in value.splitlines():
        if len(line) >= MIN_LINE and line != value and not line.startswith("-----"):
            yield from _escaped(line)


def _escaped(value: str) -> set[str]:
    texts = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    return texts | {repr(value)[1:-1], ascii(value)[1:-1], repr(value.encode())[2:-1]}


REVEALED: Final = RevealedSecrets()
"""One per process: a value that one task has read may reach another through a variable of a module."""


class GuardedCodec:
    """A codec that refuses to encode values that hold a revealed secret."""

    def __init__(self, inner: Codec, revealed: RevealedSecrets = REVEALED) -> None:
        self._inner = inner
        self._revealed = revealed
        self._json = JsonCodec()
        self.decode = inner.decode

    def encode(self, value: object, *, limit: int = MAX_PAYLOAD_BYTES) -> bytes:
        payload = self._inner.encode(value, limit=limit)
        if self._revealed:
            # Encoded once more, because the payload may be encrypted or compressed.
            self.require_none(self._json.encode(value, limit=_ANY_SIZE).decode())
        return payload

    def require_none(self, text: str) -> None:
        """Raise `SecretExposed` if the text holds a revealed secret."""
        name = self._revealed.found_in(text)
        if name is not None:
            raise SecretExposed(
                f"the value holds the secret {name!r}",
                "return, publish and send a SecretRef in its place: the store must not hold secrets",
            )


def refuse_secrets(codec: Codec, *texts: str) -> None:
    """Raise `SecretExposed` if a text holds a revealed secret and the codec is one of tasks."""
    if isinstance(codec, GuardedCodec):
        for text in texts:
            codec.require_none(text)


def masked_json(value: Any, wanted: type[T]) -> T | None:
    """The value with all secrets masked in its texts. None if it can't be read back so."""
    codec = JsonCodec()
    try:
        text = codec.encode(value, limit=_ANY_SIZE).decode()
        masked = REVEALED.masked(text)
        return value if masked == text else codec.decode(masked.encode(), wanted)
    except (InputError, NotEncodable):
        return None
