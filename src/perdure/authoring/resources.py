"""Resources in tasks: `client = await perdure.resource(Client)`."""

from typing import TypeVar

from perdure.authoring.context import HostRequest, task_context
from perdure.core.errors import InputError

T = TypeVar("T")


def resource(kind: type[T]) -> HostRequest[T]:
    """The engine's resource of that type, in a task: `await perdure.resource(Client)`; in a sync task
    `resource(Client).wait()`.

    The engine makes it when a task first asks for it, `Engine(url, resources={Client: make_client})`, gives all tasks
    the same one, and closes it when the engine closes.
    """
    if not isinstance(kind, type):
        raise InputError(f"{kind!r} is no class", "pass the class that the engine was given")
    return task_context("perdure.resource").resource(kind)
