"""Starts that a limit refused."""

from perdure.core.errors.base import PerdureError


class LimitReached(PerdureError):
    """A limit has no slot for the start, and its rules refuse it. `retry_after` is how many seconds to wait."""

    code = "limit-reached"

    def __init__(self, what: str, remedy: str, retry_after: float) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, retry_after)
        self.retry_after = retry_after
