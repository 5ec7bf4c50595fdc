"""Refuses what an event loop can do and a workflow can't: sockets, threads, processes, signals of the system."""

import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, NoReturn

from perdure.authoring.values.failures import OUR_FILES
from perdure.core.errors import ForeignAwait

_THREADS: Final = ("run_in_executor", "call_soon_threadsafe", "set_default_executor")
_RUNNING: Final = ("run_forever", "run_until_complete", "stop", "close")
_SETTINGS: Final = ("set_debug", "slow_callback_duration")


def refuse_others(loop: type[AbstractEventLoop]) -> None:
    """Let `loop` refuse each method of an event loop that it doesn't define."""
    for name in dir(AbstractEventLoop):
        if getattr(loop, name) is getattr(AbstractEventLoop, name) and not name.startswith("_"):
            setattr(loop, name, _refusal(name))


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        owner = "a workflow" if self.is_closed() else f"workflow {self.machine.workflow.name!r}"
        raise ForeignAwait(f"{owner} calls loop.{name} ({_caller()})", _remedy(name))

    refuse.__name__ = name
    return refuse


def _remedy(name: str) -> str:
    if name in _THREADS:
        return "do what needs a thread in a @task that is a plain `def`"
    if name in _RUNNING:
        return "await the coroutine: the workflow's own loop runs already"
    if name in _SETTINGS:
        return "leave it out: a workflow's loop has no such setting"
    return "do it in a @task"


def _caller() -> str:
    """The line of the program: the innermost one that is neither Perdure's nor asyncio's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(OUR_FILES)
        or frame.f_globals.get("__package__") == "asyncio"
    ):
        frame = frame.f_back
    if frame is None:
        return "in a callback"
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
