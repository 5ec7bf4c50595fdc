"""Expressions that have no value."""

from perdure.core.errors.base import PerdureError


class EvaluationError(PerdureError):
    """An expression met a value that it does not compute with. Errors that Python has a name for are Python's."""

    code = "evaluation"


class ExpressionTooCostly(EvaluationError):
    """The evaluation was given up before it took too long, or made something too large."""

    code = "expression-too-costly"
