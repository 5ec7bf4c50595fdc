"""Applies the policies of retention in the background, while a host is open, and deletes what is not delivered."""

import asyncio
import logging

from perdure.core.errors import PerdureError
from perdure.host.context import HostContext
from perdure.host.retention.acts import end_unfinished
from perdure.host.retention.passes import Retained, apply_policy, sweep_messages
from perdure.host.retention.places import Places

log = logging.getLogger("perdure.host")


def places_of(context: HostContext) -> Places:
    """Where the parts of the host's runs are."""
    services = context.services
    archive = services.archive
    if archive is None and services.artifacts is not None:
        archive = services.artifacts.store
    return Places(context.store, context.sources, services.artifacts, archive)


async def retain_regularly(context: HostContext) -> None:
    """Make a pass again and again until the host stops. A pass that fails is logged, and the next one tries again."""
    while not context.stopping.is_set():
        try:
            async with asyncio.timeout(context.settings.retention_every):
                await context.stopping.wait()
        except TimeoutError:
            try:
                await make_pass(context)
            except PerdureError as error:
                log.warning("a pass of retention failed: %s", error)


async def make_pass(context: HostContext) -> list[Retained]:
    """End what was interrupted, apply the policies in their order, and sweep the messages."""
    places = places_of(context)
    await end_unfinished(places)
    done = [await apply_policy(places, policy) for policy in context.services.retention]
    for each in done:
        log.info("retention: %s of %d runs: %d", each.policy.then, each.due, each.done)
    keep_ms = round(context.settings.keep_messages * 1000)
    count = await sweep_messages(places, keep_ms)
    if count:
        log.info("%d messages that were not delivered any more were deleted", count)
    return done
