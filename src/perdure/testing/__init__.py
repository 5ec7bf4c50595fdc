"""The crash explorer, checkers and virtual time that test Perdure itself, for your programs."""

from perdure.testing.checkers import assert_sound
from perdure.testing.explorer import Exploration, ScheduleFailed
from perdure.testing.script import After
from perdure.testing.user_tables import Tables
from perdure.testing.virtual_clock import Clock, simulated
from perdure.testing.workflows import Ended, Race, explore_workflow

__all__ = [
    "After",
    "Clock",
    "Ended",
    "Exploration",
    "Race",
    "ScheduleFailed",
    "Tables",
    "assert_sound",
    "explore_workflow",
    "simulated",
]
