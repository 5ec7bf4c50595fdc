"""Validation of the arguments of an engine, its starts and its searches."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.authoring.call import Call
from perdure.authoring.definition import require_name
from perdure.authoring.program import Program, ProgramCall
from perdure.core.errors import InputError
from perdure.core.runs.authority import AllowAll, Authorizer
from perdure.host.alerts import OnAlert
from perdure.host.bus.bus import EventBus
from perdure.host.secrets import SecretProvider
from perdure.host.settings import Settings
from perdure.host.tracing import Tracing


def require_engine_settings(settings: object) -> Settings:
    if settings is None:
        return Settings()
    if not isinstance(settings, Settings):
        raise InputError(f"settings is {settings!r}", "pass perdure.Settings(...)")
    return settings


def require_hosts(hosts: object, queues: Sequence[str]) -> bool:
    """Whether the engine is a host. One that is not can't serve queues."""
    if not isinstance(hosts, bool):
        raise InputError(f"hosts is {hosts!r}", "pass True or False")
    if queues and not hosts:
        raise InputError(
            f"queues {list(queues)!r} for an engine with hosts=False, which executes nothing",
            "leave one of them out",
        )
    return hosts


def require_secret_providers(given: object) -> tuple[SecretProvider, ...]:
    if not isinstance(given, list | tuple) or not all(hasattr(each, "secret") for each in given):
        raise InputError(
            f"secrets is {given!r:.200}", "pass a list of providers: [EnvironmentSecrets()]"
        )
    return tuple(given)


def require_buses(given: object) -> tuple[EventBus, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(b, EventBus) for b in given):
        raise InputError(f"buses is {given!r:.200}", "pass a list of buses: [Subscriber(...)]")
    names = [bus.name for bus in given]
    if len(set(names)) < len(names):
        raise InputError(f"two buses have one name: {names}", "pass name='...' to one of them")
    return tuple(given)


def take_program(call: object) -> Program[..., Any]:
    """The program of a call. Marks the call as used, even if it can't be started."""
    if not isinstance(call, Call):
        raise InputError(
            f"{call!r} can't be started", "pass a call of a workflow: `checkout(order)`"
        )
    call.use()
    if not isinstance(call, ProgramCall):
        raise InputError(
            f"{call.definition.name!r} is a {call.definition.noun} and can't be started alone",
            "start a workflow that awaits it",
        )
    return call.definition


def require_input_fields(graph: str, given: object) -> dict[str, Any]:
    """The input of a graph, by field."""
    if not isinstance(given, dict) or not all(isinstance(field, str) for field in given):
        what = f"the input of graph {graph!r} is {given!r:.200}"
        raise InputError(what, "pass a dict of its fields")
    return given


def require_program_name(program: object) -> str:
    """The name of a program that is given as itself or by name."""
    if isinstance(program, Program):
        return program.name
    if not isinstance(program, str):
        raise InputError(f"{program!r} is not a program", "pass a workflow or graph, or its name")
    return require_name("program", program)


def require_on_alert(on_alert: OnAlert | None) -> OnAlert | None:
    if on_alert is not None and not callable(on_alert):
        raise InputError(
            f"on_alert is {on_alert!r}", "pass a function that takes an alert, or leave it out"
        )
    return on_alert


def require_authorizer(authorizer: Authorizer | None) -> Authorizer:
    """The authorizer; without one, every act is allowed."""
    if authorizer is None:
        return AllowAll()
    if isinstance(authorizer, type) or not callable(getattr(authorizer, "decide", None)):
        raise InputError(
            f"authorizer is {authorizer!r:.100}",
            "pass perdure.Roles(), or an object with `async def decide(self, act, actor, run, reason)`",
        )
    return authorizer


def require_tracing(tracing: Tracing | None) -> Tracing | None:
    if tracing is not None and not callable(getattr(tracing, "attempt_begins", None)):
        raise InputError(
            f"tracing is {tracing!r:.100}", "pass perdure.integrations.otel.OpenTelemetry()"
        )
    return tracing


def require_resources(given: object) -> Mapping[type, Callable[[], Any]]:
    if isinstance(given, Mapping):
        wrong = [f"{kind!r}: {make!r}" for kind, make in given.items() if not _is_made(kind, make)]
        if not wrong:
            return dict(given)
        given = f"{{{wrong[0]}}}"
    raise InputError(
        f"resources is {given}", "pass a dict of functions by type: {Client: make_client}"
    )


def _is_made(kind: object, make: object) -> bool:
    return isinstance(kind, type) and callable(make)
