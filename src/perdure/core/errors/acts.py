"""Operator acts that were refused before the run got them."""

from perdure.core.errors.base import PerdureError


class ActRefused(PerdureError):
    code = "act-refused"


class Denied(ActRefused):
    """The authorizer denied the act. The run's history records it, without an effect. `reason_code` is its code."""

    code = "denied"

    def __init__(self, what: str, remedy: str, reason_code: str = "AUTHZ_DENIED") -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, reason_code)
        self.reason_code = reason_code


class TooManyActs(ActRefused):
    """So many acts wait for the run that no more are accepted."""

    code = "too-many-acts"
