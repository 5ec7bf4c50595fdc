"""Types of the standard library that are stored as a text: paths, time zones, network addresses, fractions."""

from collections.abc import Callable
from fractions import Fraction
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_PATHS: Final = (Path, PosixPath, WindowsPath, PurePath, PurePosixPath, PureWindowsPath)
_ADDRESSES: Final = (
    *(IPv4Address, IPv4Interface, IPv4Network),
    *(IPv6Address, IPv6Interface, IPv6Network),
)


def _zone_text(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise ValueError("a time zone without a name can't be read again")
    return zone.key


def _zone_of(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"no time zone {text!r} on this machine") from error


_TEXT_OF: Final[dict[type, Callable[[Any], str]]] = {
    **dict.fromkeys((*_PATHS, *_ADDRESSES, Fraction), str),
    ZoneInfo: _zone_text,
}


def is_text_type(cls: object) -> bool:
    """Whether values of exactly this class are stored as a text."""
    return cls in _TEXT_OF if isinstance(cls, type) else False


def text_of(value: object) -> str:
    """The stored text of a value of a text type. Raises `ValueError` if it has none."""
    return _TEXT_OF[type(value)](value)


def value_of(cls: Any, text: str) -> Any:
    """The value that was stored. Raises `ValueError` if the text names none."""
    try:
        return _zone_of(text) if cls is ZoneInfo else cls(text)
    except ZeroDivisionError as error:
        raise ValueError(f"{text!r} is no fraction") from error
    except NotImplementedError as error:  # a path of another operating system
        raise ValueError(str(error)) from error
