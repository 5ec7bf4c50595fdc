"""Checks of what a bundle is given: ids, texts and sizes that the store can hold."""

from perdure.core.errors import PayloadTooLarge
from perdure.core.ids import parse_run_id
from perdure.core.limits import (
    MAX_KEY_LENGTH,
    MAX_NAME_LENGTH,
    MAX_PAYLOAD_BYTES,
)
from perdure.core.texts import require_storable_text
from perdure.store.rows.records import NewRun
from perdure.store.rows.values import require_integer


def require_new_run(run: NewRun) -> None:
    parse_run_id(run.run_id)
    texts = f"{run.scope}{run.program}{run.version}{run.digest}{run.owner or ''}"
    if len(texts) > MAX_NAME_LENGTH or not texts.isascii() or "\0" in texts:  # rare
        require_storable_text("scope", run.scope, MAX_NAME_LENGTH)
        require_storable_text("program", run.program, MAX_NAME_LENGTH)
        require_storable_text("version", run.version, MAX_NAME_LENGTH)
        require_storable_text("digest", run.digest, MAX_NAME_LENGTH)
        require_storable_text("owner", run.owner or "", MAX_NAME_LENGTH)
    if run.key is not None:
        require_storable_text("key", run.key, MAX_KEY_LENGTH)
    if run.chain is not None:
        parse_run_id(run.chain)
    for other in (run.replaces, run.parent, run.forked_from):
        if other is not None:
            parse_run_id(other)
    require_integer("created_at_ms", run.created_at_ms)


def collide(run: NewRun, other: NewRun) -> bool:
    keys = (run.scope, run.program, run.key), (other.scope, other.program, other.key)
    return run.run_id == other.run_id or (run.key is not None and keys[0] == keys[1])


def require_payload(what: str, payload: bytes | None) -> None:
    if payload is not None and len(payload) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"{what} carries {len(payload):,} bytes, over the limit of {MAX_PAYLOAD_BYTES:,}",
            "store the payload elsewhere and pass a reference",
        )
