"""Renews the leases of claimed tasks, in the heartbeat's thread: a task that blocks the event loop keeps its lease."""

import logging
from collections.abc import Callable, Sequence

from perdure.core.errors import StoreError
from perdure.engine.sources import Sources
from perdure.host.clock import elapsed_ms
from perdure.store.rows.hosts import HeartbeatConnection
from perdure.store.rows.records import Claim

log = logging.getLogger("perdure.host")

RENEWALS = 3
"""Renewals per length of a lease: two may fail before the lease ends."""


class Renewal:
    """Belongs to the heartbeat's thread. Makes no request to the store while the host has no claims.

    `claims` returns the claims under which tasks run here; `lost` gets those that the store no longer has. Both are
    called in the heartbeat's thread.
    """

    def __init__(
        self,
        claims: Callable[[], Sequence[Claim]],
        lost: Callable[[Sequence[Claim]], None],
        lease_ms: int,
        sources: Sources,
    ) -> None:
        """`sources` has the host's clock, by which leases are granted, too."""
        self._claims = claims
        self._lost = lost
        self._lease_ms = lease_ms
        self._sources = sources
        self._is_answered = True
        self.due_ms = elapsed_ms() + lease_ms // RENEWALS
        """When to renew next, by the clock that counts the machine's sleep."""

    def renew(self, line: HeartbeatConnection, limit_s: float) -> None:
        """Renew all leases in one statement. If the store does not answer, the next renewal tries again."""
        self.due_ms = elapsed_ms() + self._lease_ms // RENEWALS
        claims = self._claims()
        if not claims:
            return
        try:
            held = set(line.renew(claims, self._sources.now_ms() + self._lease_ms, limit_s))
        except StoreError as error:
            if self._is_answered:
                log.warning("leases could not be renewed; retrying: %s", error)
            self._is_answered = False
            return
        self._is_answered = True
        if lost := [claim for claim in claims if claim not in held]:
            self._lost(lost)
