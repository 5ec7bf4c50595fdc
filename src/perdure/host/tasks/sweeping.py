"""Deletes expired and orphaned artifacts in the background, while a host is open."""

import asyncio
import logging

from perdure.core.errors import StoreError
from perdure.host.artifacts.artifacts import Artifacts
from perdure.host.artifacts.sweep import sweep
from perdure.host.context import HostContext

log = logging.getLogger("perdure.host")


async def sweep_regularly(context: HostContext, artifacts: Artifacts) -> None:
    """Sweep again and again until the host stops. A sweep that fails is logged, and the next one tries again."""
    while not context.stopping.is_set():
        try:
            async with asyncio.timeout(artifacts.sweep_every_s):
                await context.stopping.wait()
        except TimeoutError:
            try:
                swept = await sweep(artifacts, context.store, context.sources)
            except StoreError as error:
                log.warning("artifacts could not be swept: %s", error)
            else:
                log.info("%d of %d artifacts were deleted", swept.deleted, swept.found)
