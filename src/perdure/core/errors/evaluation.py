"""Errors in evaluating expressions."""

from perdure.core.errors.base import PerdureError


class EvaluationError(PerdureError):
    """An expression can't compute with a value. Other evaluation errors are Python's own exceptions."""

    code = "evaluation"


class ExpressionTooCostly(EvaluationError):
    """The evaluation was stopped: it would take too long, or make something too large."""

    code = "expression-too-costly"
