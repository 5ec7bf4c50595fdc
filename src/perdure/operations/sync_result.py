"""The result of `Operation.sync`."""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.core.errors import OperationFailed
from perdure.operations.calls import SpawnedCall


class SyncResult(msgspec.Struct, frozen=True):
    """Outcomes of calls that were awaited together. `unknown_calls` were running when the operation failed."""

    successful_calls: list[SpawnedCall[Any]]
    failed_calls: list[SpawnedCall[Any]]
    unknown_calls: list[SpawnedCall[Any]]
    operation_failed: bool

    @classmethod
    def of(cls, calls: Sequence[SpawnedCall[Any]], failure: OperationFailed | None) -> "SyncResult":
        unknown = [call for call in calls if not _is_known(call, failure)]
        return cls(
            [call for call in calls if call not in unknown and call.is_success],
            [call for call in calls if call not in unknown and call.is_failed],
            unknown,
            failure is not None,
        )

    @property
    def all_succeeded(self) -> bool:
        return not self.operation_failed and not self.failed_calls and not self.unknown_calls

    @property
    def has_failed(self) -> bool:
        return self.operation_failed or bool(self.failed_calls)

    @property
    def all_resolved(self) -> bool:
        return not self.unknown_calls


def _is_known(call: SpawnedCall[Any], failure: OperationFailed | None) -> bool:
    """Whether the call ended on its own, not because the operation failed."""
    return call.is_completed and (failure is None or not isinstance(call.error, OperationFailed))
