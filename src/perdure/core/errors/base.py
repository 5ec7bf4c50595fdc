"""The base of all errors that Perdure raises on purpose."""

from typing import ClassVar


class PerdureError(Exception):
    """Base of all. `code` never changes once released; the text may."""

    code: ClassVar[str] = "perdure"

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"
