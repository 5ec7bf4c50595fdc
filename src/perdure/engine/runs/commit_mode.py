"""How a host commits the parts of a transition."""

from enum import Enum


class CommitMode(Enum):
    """How the parts of a transition are committed. Both ways write the same entries."""

    FUSED = "fused"
    """All parts in one commit: the normal mode."""

    STEPWISE = "stepwise"
    """Each part in a commit of its own."""
