"""The history of a run, for sync code."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

from perdure.client.runs.history import HistoryMethods, LedgerAccount
from perdure.core.runs.contract_event import ContractEvent
from perdure.core.runs.decided_acts import DecidedAct
from perdure.core.runs.snapshot import RunSnapshot
from perdure.core.runs.tracing import TraceSpan

T = TypeVar("T")


class SyncHistoryMethods(ABC):
    """The methods of `SyncHandle` that read a run's history."""

    @property
    @abstractmethod
    def _of_run(self) -> HistoryMethods:
        """The handle whose methods these are."""

    @abstractmethod
    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the engine's loop."""

    @abstractmethod
    def _each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """The items of a generator in the engine's loop."""

    def history(self, first: int = 0) -> Iterator[ContractEvent]:
        return self._each(self._of_run.history(first))

    def follow(self, first: int = 0) -> Iterator[ContractEvent]:
        return self._each(self._of_run.follow(first))

    def view(self) -> RunSnapshot:
        return self._wait_for(self._of_run.view())

    def watch(self) -> Iterator[RunSnapshot]:
        return self._each(self._of_run.watch())

    def decisions(self) -> list[DecidedAct]:
        return self._wait_for(self._of_run.decisions())

    def params(self) -> dict[str, Any]:
        return self._wait_for(self._of_run.params())

    def ledger(self) -> list[LedgerAccount]:
        return self._wait_for(self._of_run.ledger())

    def trace(self) -> list[TraceSpan]:
        return self._wait_for(self._of_run.trace())
