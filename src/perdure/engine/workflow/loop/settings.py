"""What a workflow's event loop says of itself, and what it does with exceptions that the program doesn't retrieve."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perdure.core.errors import InputError

if TYPE_CHECKING:
    from perdure.engine.workflow.machine import WorkflowMachine

_log = logging.getLogger("perdure.asyncio")


class LoopSettings(asyncio.AbstractEventLoop):
    """The settings of a loop, and its report of exceptions."""

    def __init__(self, machine: "WorkflowMachine") -> None:
        self.machine = machine
        self._info = machine.info
        self._is_released = False
        self._is_over = False
        """Whether the run has ended here. Tasks that are freed later still report their exceptions."""
        self._factory: Any = None
        self._exception_handler: Callable[[Any, dict[str, Any]], object] | None = None

    @property
    def _is_closing(self) -> bool:
        return self._is_released or self.machine.is_closed

    def set_task_factory(self, factory: Any) -> None:
        if factory is not None and factory is not getattr(asyncio, "eager_task_factory", None):
            raise InputError(
                f"workflow {self.machine.workflow.name!r} sets the task factory {factory!r}",
                "pass None or asyncio.eager_task_factory",
            )
        self._factory = factory

    def get_task_factory(self) -> Any:
        return self._factory

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an exception that the program does not retrieve."""
        machine = self.machine
        if not self._is_over and (self._is_closing or machine.record.diverged is not None):
            return
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_over and (self._is_closing or self.machine.is_replaying):
            return
        extra = {"run_id": self._info.run_id, "program": self._info.program}
        _log.error(context.get("message"), exc_info=context.get("exception"), extra=extra)

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._is_released

    get_debug = bool
    """Returns False, without a call of Python code: asyncio asks for each future that it makes."""

    async def shutdown_asyncgens(self) -> None:
        """Does nothing: the machine closes generators that the program abandons."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's
        """Does nothing: there is none."""
