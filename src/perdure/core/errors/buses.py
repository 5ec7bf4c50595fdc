"""What an event bus says of an event that it does not take."""

from perdure.core.errors.base import PerdureError


class BusError(PerdureError):
    """An event was not published."""

    code = "bus"


class BusRefused(BusError):
    """The bus refuses this event: it is tried again a few times, and is then a dead letter."""

    code = "bus-refused"


class BusUnavailable(BusError):
    """The bus takes no events now: all of them wait, and none is lost. `retry_after` is in seconds, if it is known."""

    code = "bus-unavailable"

    def __init__(self, what: str, remedy: str, retry_after: float | None = None) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, retry_after)
        self.retry_after = retry_after
