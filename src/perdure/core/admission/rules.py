"""The rules of a limit, the slots in which it counts, and its rate."""

from typing import Final, Literal, get_args

import msgspec

Over = Literal["queue", "reject", "delay", "replace", "join"]
"""What a start does when its limit has no free slot."""

OVER: Final = get_args(Over)

NO_SLOT: Final = ""
"""The line of runs that wait for a time or an approval, and for no limit."""


class Pace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rate: `count` in `per_ms`, at an even pace, of which `burst` may come at once."""

    count: int
    per_ms: int
    burst: int

    @property
    def interval_us(self) -> int:
        return max(1, self.per_ms * 1000 // self.count)

    def allowed(self, arrival_us: int, now_ms: int, wanted: int) -> int:
        """How many of `wanted` the rate allows now. `arrival_us` is when the next one is due at an even pace."""
        ahead = (self.burst - 1) * self.interval_us
        room = now_ms * 1000 + ahead - max(arrival_us, now_ms * 1000)
        return max(0, min(wanted, room // self.interval_us + 1))

    def after(self, arrival_us: int, now_ms: int, taken: int) -> int:
        """When the next one is due, after `taken` more."""
        return max(arrival_us, now_ms * 1000) + taken * self.interval_us

    def wait_ms(self, arrival_us: int, now_ms: int) -> int:
        """How long until the rate allows one more; 0 if it does now."""
        ahead = (self.burst - 1) * self.interval_us
        return max(0, -(-(arrival_us - ahead - now_ms * 1000) // 1000))


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numbers of a limit. `None` is no limit of that kind.

    `retry_ms` is what a refused caller is advised to wait, if the rate does not say.
    """

    running: int | None = None
    queued: int | None = None
    over: Over = "queue"
    pace: Pace | None = None
    retry_ms: int = 1000


class Setting(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator's values for a limit: each replaces the code's, until the operator resets them."""

    running: int | None = None
    queued: int | None = None
    pace: Pace | None = None
    reason: str = ""
    by: str = ""


def in_force(rules: Rules, setting: Setting | None) -> Rules:
    """The rules after an operator's setting."""
    if setting is None:
        return rules
    changes = {
        name: value
        for name in ("running", "queued", "pace")
        if (value := getattr(setting, name)) is not None
    }
    return msgspec.structs.replace(rules, **changes)


def slot_name(limit: str, scope: str | None, key: str) -> str:
    """The slot of a limit: where its runs are counted together. Without a scope it counts all scopes together."""
    return msgspec.json.encode([limit, scope, key]).decode()


def parse_slot(slot: str) -> tuple[str, str | None, str]:
    """The name of the limit, the scope and the key of a slot."""
    return msgspec.json.decode(slot, type=tuple[str, str | None, str])
