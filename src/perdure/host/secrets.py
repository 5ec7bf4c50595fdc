"""Where secrets come from: environment variables, files, or a provider of the user's own."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from perdure.authoring.secrets import reveal
from perdure.core.errors import InputError, UnknownSecret
from perdure.core.secrets import MIN_LENGTH, require_secret_name

MAX_SECRET_BYTES = 64 * 1024


class SecretScope(tuple[str, ...]):
    """Whose secrets a run may read: `(tenant, environment)` of the scope `tenant/project/environment`.

    Another scope has its parts, and a run without a scope has `()`.
    """

    __slots__ = ()

    @classmethod
    def of(cls, scope: str) -> "SecretScope":
        parts = tuple(scope.split("/")) if scope else ()
        return cls((parts[0], parts[2]) if len(parts) == 3 else parts)

    @property
    def is_nameable(self) -> bool:
        """Whether each part may be the name of a directory or a part of a variable's name."""
        return all(map(_is_name, self))


def _is_name(part: str) -> bool:
    try:
        require_secret_name(part)
    except InputError:
        return False
    return True


class SecretProvider(Protocol):
    """A source of secrets: `Engine(url, secrets=[...])`."""

    async def secret(self, name: str, scope: SecretScope) -> str | None:
        """The value of a secret for exactly that scope; `None` if there is none."""
        ...


class EnvironmentSecrets:
    """Secrets in environment variables: `PERDURE_SECRET_stripe`, and for a tenant `PERDURE_SECRET_acme__prod__stripe`.

    Names are taken as they are, upper case and lower case. A name or a part of a scope with `__`, or with other
    characters than letters, digits and `_`, has no variable.
    """

    def __init__(self, prefix: str = "PERDURE_SECRET_") -> None:
        self._prefix = prefix

    async def secret(self, name: str, scope: SecretScope) -> str | None:
        parts = (*scope, name)
        # One variable must not serve two scopes.
        if not all(_is_part_of_variable(part) for part in parts):
            return None
        return os.environ.get(self._prefix + "__".join(parts))


def _is_part_of_variable(part: str) -> bool:
    plain = part.replace("_", "")
    return (
        plain.isascii()
        and plain.isalnum()
        and "__" not in part
        and not part.startswith("_")
        and not part.endswith("_")
    )


class FileSecrets:
    """Secrets in files of a directory, one each: `stripe`, and for a tenant `acme/prod/stripe`.

    A line end at the end of a file is not part of the secret.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

    async def secret(self, name: str, scope: SecretScope) -> str | None:
        if not scope.is_nameable:
            return None
        return await asyncio.to_thread(_read, self._directory.joinpath(*scope, name))


def _read(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            text = file.read(MAX_SECRET_BYTES + 1)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    if len(text) > MAX_SECRET_BYTES:
        raise InputError(
            f"secret {path.name!r} is over {MAX_SECRET_BYTES:,} characters", "shorten it"
        )
    return text.removesuffix("\n").removesuffix("\r")


async def read_secret(providers: Sequence[SecretProvider], name: str, scope: str) -> str:
    """The value of a secret, masked in this process from now on. Raises `UnknownSecret`."""
    whose = SecretScope.of(scope)
    for provider in providers:
        value: object = await provider.secret(name, whose)
        if value is None:
            continue
        if not isinstance(value, str) or len(value) < MIN_LENGTH:
            raise InputError(
                f"secret {name!r} is not a text of at least {MIN_LENGTH} characters",
                "a shorter one can't be masked: choose another",
            )
        reveal(value, name)
        return value
    raise UnknownSecret(
        f"no provider has the secret {name!r} for scope {scope!r}",
        "pass a provider that has it as Engine(secrets=[...]), on every host that executes the task",
    )
