"""Names of artifacts in their store, and which of them a sweep deletes. Pure."""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from perdure.core.errors import InputError, InvalidId
from perdure.core.ids import RunId, parse_run_id

SCHEME: Final = "artifact:"

SWEPT: Final = "swept"
"""Begins the nonce of a mark: the run is over, and all its orphans are deleted. Other nonces are hex."""

SHA256_DIGITS: Final = 64

START_GRACE_MS: Final = 3_600_000
"""How long objects of a run that is not in the store stay at least: its start may be under way."""

MAX_KIND_LENGTH: Final = 100


class ArtifactName(msgspec.Struct, frozen=True):
    """The parts of a name: `<shard>/<run>/<when it expires>-<nonce>`.

    A name is used once, so no writer depends on what a sweep deletes. 0 means that it does not expire.
    """

    run_id: RunId
    expires_at_ms: int
    nonce: str

    def __str__(self) -> str:
        return f"{run_prefix(self.run_id)}{self.expires_at_ms}-{self.nonce}"

    @property
    def is_payload(self) -> bool:
        """Whether it is a large payload, named by its SHA-256, which stays as long as its run."""
        return len(self.nonce) == SHA256_DIGITS

    @property
    def is_mark(self) -> bool:
        return self.nonce.startswith(SWEPT)


def run_prefix(run_id: RunId) -> str:
    """What the names of all artifacts of a run begin with. The end of a run's id is random, its beginning a time."""
    return f"{run_id[-2:]}/{run_id}/"


def parse_name(name: str) -> ArtifactName:
    """Raises `InvalidId` for a name that Perdure did not make."""
    parts = name.split("/")
    expires, _, nonce = parts[-1].partition("-")
    if len(parts) != 3 or not expires.isdecimal() or not expires.isascii() or not nonce.isalnum():
        raise InvalidId(
            f"{name!r:.200} is no name of an artifact", "use one that an ArtifactRef has"
        )
    parsed = ArtifactName(parse_run_id(parts[1]), int(expires), nonce)
    if str(parsed) != name:
        raise InvalidId(
            f"{name!r:.200} is no name of an artifact", "use one that an ArtifactRef has"
        )
    return parsed


def name_of(uri: str) -> ArtifactName:
    """The name in the `uri` of an `ArtifactRef`."""
    if not uri.startswith(SCHEME):
        raise InputError(
            f"{uri!r:.200} is not an artifact of this engine", "fetch it where it is stored"
        )
    return parse_name(uri.removeprefix(SCHEME))


class StoredArtifact(msgspec.Struct, frozen=True):
    """An object in an artifact store."""

    name: str
    size: int
    stored_at_ms: int


class RunFacts(msgspec.Struct, frozen=True):
    """What a sweep knows of a run.

    `is_in_use`: the run is open, or a run is that may have got its references: its parent, or one that continues it.
    `referenced` are the names that its journal has; None if they were not read.
    """

    is_in_use: bool
    referenced: Collection[str] | None


def to_delete(
    objects: Sequence[StoredArtifact], run: RunFacts | None, now_ms: int, grace_ms: int
) -> list[str]:
    """The names of the objects of one run that a sweep deletes. `run` is None if the run is not in the store.

    Nothing of a run in use, nothing that is younger than the grace time, and no large payload of a run that is in the
    store. Of a run that is over: what has expired, and what its journal does not refer to.
    """
    if run is not None and run.is_in_use:
        return []
    grace_ms = max(grace_ms, START_GRACE_MS) if run is None else grace_ms
    deleted = []
    for each in objects:
        name = parse_name(each.name)
        stays = run is not None and (name.is_mark or name.is_payload)
        if stays or each.stored_at_ms + grace_ms > now_ms:
            continue
        is_expired = 0 < name.expires_at_ms <= now_ms
        is_orphan = run is None or (run.referenced is not None and each.name not in run.referenced)
        if is_expired or is_orphan:
            deleted.append(each.name)
    return deleted
