"""What an engine was given beside its store, such as places for artifacts, sources of secrets and event buses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.core.codec import Codec
from perdure.core.runs.authority import AllowAll, Authorizer
from perdure.host.artifacts.artifacts import Artifacts
from perdure.host.artifacts.payloads import LargePayloads, reading_large
from perdure.host.artifacts.store import ArtifactStore
from perdure.host.bus.bus import EventBus
from perdure.host.retention.policy import Retention
from perdure.host.secrets import SecretProvider
from perdure.host.tracing import Tracing


@dataclass(frozen=True)
class Services:
    artifacts: Artifacts | None = None
    secrets: Sequence[SecretProvider] = ()
    authorizer: Authorizer = field(default_factory=AllowAll)
    tracing: Tracing | None = None
    buses: Sequence[EventBus] = ()
    resources: Mapping[type, Callable[[], Any]] = field(default_factory=dict)
    """Functions that make resources of tasks, by type."""
    archive: ArtifactStore | None = None
    retention: Sequence[Retention] = ()


def reading_codec(codec: Codec, services: Services) -> Codec:
    """A codec for replays that store nothing: large payloads can be read."""
    if services.artifacts is None:
        return codec
    return reading_large(codec, LargePayloads(services.artifacts, stores=False))


NO_SERVICES = Services()
