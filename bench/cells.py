"""Figures as cells of a table."""


def count(number: float) -> str:
    return f"{number:,.0f}"


def ratio(number: float) -> str:
    return f"{number:.2f}"


def times(number: float) -> str:
    return f"{number:.1f}"


def ms(milliseconds: float) -> str:
    return f"{milliseconds:,.2f} ms"


def seconds(number: float) -> str:
    return f"{number:.2f} s"
