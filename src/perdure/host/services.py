"""What an engine was given beside its store: places for artifacts, and sources of secrets."""

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.host.artifacts.artifacts import Artifacts
from perdure.host.secrets import SecretProvider


@dataclass(frozen=True)
class Services:
    artifacts: Artifacts | None = None
    secrets: Sequence[SecretProvider] = ()


NO_SERVICES = Services()
