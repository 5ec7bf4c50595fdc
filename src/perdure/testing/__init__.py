"""The crash explorer, checkers and virtual time: what proves Perdure, for your programs too."""

from perdure.testing.checkers import assert_sound
from perdure.testing.explorer import Exploration, ScheduleFailed
from perdure.testing.interlude import After
from perdure.testing.workflows import Race, explore_workflow

__all__ = ["After", "Exploration", "Race", "ScheduleFailed", "assert_sound", "explore_workflow"]
