"""The options of an engine that connect it with other parts of a program."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from perdure.client.artifacts import archive_from, artifacts_from
from perdure.client.engine_arguments import (
    require_authorizer,
    require_buses,
    require_resources,
    require_secret_providers,
    require_tracing,
)
from perdure.core.runs.authority import Authorizer
from perdure.host.alerts import OnAlert
from perdure.host.artifacts.artifacts import Artifacts
from perdure.host.artifacts.store import ArtifactStore
from perdure.host.bus.bus import EventBus
from perdure.host.retention.policy import Retention, require_policies
from perdure.host.secrets import SecretProvider
from perdure.host.services import Services
from perdure.host.tracing import Tracing


class EngineServices(TypedDict, total=False):
    """More options of an engine, by keyword.

    `artifacts` is a place for large results: a directory, or an `ArtifactStore`. `secrets` are asked for the secrets
    that tasks read. The `authorizer` decides who may act on runs as an operator. `on_alert` is called with each alert
    in the engine's event loop; it may be a coroutine function. `tracing` reports spans of runs and attempts, for
    instance `perdure.integrations.otel.OpenTelemetry()`. The events of runs are published to `buses`. `resources` are
    functions, by type, that make what tasks get from `perdure.resource`: each returns it, an awaitable of it, or a
    context manager. `retention` has policies for runs that are over; `archive` is where they are archived, by default
    where artifacts are: a directory, or an `ArtifactStore`.
    """

    artifacts: Artifacts | ArtifactStore | str | None
    secrets: Sequence[SecretProvider]
    authorizer: Authorizer | None
    on_alert: OnAlert | None
    tracing: Tracing | None
    buses: Sequence[EventBus]
    resources: Mapping[type, Callable[[], Any]]
    archive: ArtifactStore | str | None
    retention: Sequence[Retention]


def services_from(given: EngineServices) -> Services:
    """Validate the options. Raises `TypeError` for one that does not exist."""
    unknown = sorted(given.keys() - EngineServices.__annotations__.keys())
    if unknown:
        raise TypeError(f"Engine() got an unexpected keyword argument {unknown[0]!r}")
    return Services(
        artifacts_from(given.get("artifacts")),
        require_secret_providers(given.get("secrets", ())),
        require_authorizer(given.get("authorizer")),
        require_tracing(given.get("tracing")),
        require_buses(given.get("buses", ())),
        require_resources(given.get("resources", {})),
        archive_from(given.get("archive")),
        require_policies(given.get("retention", ())),
    )
