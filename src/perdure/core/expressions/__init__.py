"""Expressions: the one safe subset of Python that graphs use for conditions and for data.

    expression = parse("total * 2 + sum(item.price for item in items)")
    expression.evaluate({"total": 3, "items": [{"price": 4}]})   # 10

A text is checked (`checking.py`) and compiled once (`compiling.py`); an evaluation is bounded in time and in space
(`budget.py`), and does nothing but compute.
"""

from perdure.core.errors import EvaluationError, ExpressionProblem, ExpressionTooCostly
from perdure.core.expressions.budget import Meter
from perdure.core.expressions.expression import Expression, from_ast, parse

__all__ = [
    "EvaluationError",
    "Expression",
    "ExpressionProblem",
    "ExpressionTooCostly",
    "Meter",
    "from_ast",
    "parse",
]
