"""Who sends a request, and what they may see."""

import msgspec

from perdure.core.runs.acts import Actor


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request. `scope` limits them to runs of that scope and of those below it; `None` is no limit."""

    name: str
    role: str
    scope: str | None = None
    token_id: str | None = None
    expires_at_ms: int | None = None

    @property
    def actor(self) -> Actor:
        return Actor(self.name, self.role)

    def covers(self, scope: str) -> bool:
        """Whether the caller may see runs of that scope: their own, or one below it, such as `acme/eu` of `acme`."""
        own = self.scope
        return own is None or scope == own or scope.startswith(f"{own}/")
