"""What goes wrong when: a plan, drawn from a seed."""

import random
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    KILL = "kill -9"
    PAUSE = "pause"
    RESTART = "server restart"


WEIGHTS = {Kind.KILL: 5, Kind.PAUSE: 4, Kind.RESTART: 1}


class Fault(NamedTuple):
    """At some second something happens to a host, or to the server, and is over after a while."""

    at_s: float
    kind: Kind
    host: int
    for_s: float


def plan(seed: int, seconds: float, hosts: int, kinds: tuple[Kind, ...]) -> list[Fault]:
    """Faults of these kinds, each at least once, one on a host at a time."""
    chance = random.Random(seed)
    free_at = [0.0] * hosts
    faults: list[Fault] = []
    wanted = list(kinds)
    at_s = 0.0
    while (at_s := at_s + chance.uniform(0.1, 0.9)) < seconds or wanted:
        host = chance.randrange(hosts)
        if free_at[host] > at_s:
            continue
        (kind,) = chance.choices(kinds, [WEIGHTS[kind] for kind in kinds])
        kind = wanted.pop() if wanted else kind
        for_s = chance.uniform(0.1, 2.0)
        faults.append(Fault(at_s, kind, host, for_s))
        free_at[host] = at_s + for_s
    return faults
