"""Encodes what callers send, large values too, if the engine has a place for them."""

from collections.abc import Callable

from perdure.core.codec import Codec
from perdure.core.ids import RunId
from perdure.core.limits import MAX_PAYLOAD_BYTES
from perdure.host.artifacts.payloads import LargeCodec
from perdure.host.context import HostContext
from perdure.host.host import Host


def encode_input(host: Host, arguments: object) -> tuple[bytes, RunId | None]:
    """The payload of a run's input. If it is large, also the id that the run gets: its bytes are stored under it."""
    context, large = host.context, host.context.payloads
    if large is None:
        return context.caller_codec.encode(arguments), None
    payload = LargeCodec(context.caller_codec).encode(arguments)
    if len(payload) <= MAX_PAYLOAD_BYTES:
        return payload, None
    run_id = host.dispatcher.staging.new_run_id()
    payload = large.note(run_id, payload).payload
    large.store_noted(run_id)
    return payload, run_id


async def encode_message(
    context: HostContext, run_id: RunId, encode: Callable[[Codec], bytes]
) -> bytes:
    """The payload of a message to a run. The bytes of a large one are stored under the id of that run."""
    large = context.payloads
    if large is None:
        return encode(context.caller_codec)
    payload = encode(LargeCodec(context.caller_codec))
    return payload if len(payload) <= MAX_PAYLOAD_BYTES else await large.store(run_id, payload)
