"""Ids of runs, messages and hosts, and the promise ids that name each step by its path in the call tree.

Time and randomness come in as arguments.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import NewType

from perdure.core.errors import DepthExceeded, GuidReused, InvalidId
from perdure.core.limits import MAX_DEPTH, MAX_SEQUENCE

RunId = NewType("RunId", str)
"""`r_` and 32 hex digits of a UUIDv7: ids made later sort later, so inserts stay local."""

Guid = NewType("Guid", str)
"""Identity of a message: `m_`, the run that it was first sent to, `_`, and a digest of its content."""

StepId = NewType("StepId", str)
"""A step inside a run: `root.3.0` in a workflow, `price,0,0,1` in a graph."""

SetId = NewType("SetId", str)
"""Text of a join set's id. Not a `StepId`: it can't be awaited, completed or submitted."""

HostId = NewType("HostId", str)
"""A process that owns runs."""

_RUN_ID = re.compile(r"r_[0-9a-f]{32}")
_GUID = re.compile(r"m_([0-9a-f]{32})_[0-9a-f]{32}")
_PROMISE = re.compile(r"root(?:\.(?:0|[1-9][0-9]{0,9}))*")

_V7 = 0x7 << 76
_VARIANT = 0x2 << 62


def new_run_id(at_ms: int, entropy: bytes) -> RunId:
    """A run id from the time and 10 random bytes."""
    if not 0 <= at_ms < 1 << 48:
        raise InvalidId(f"time {at_ms} ms does not fit a run id", "pass milliseconds since 1970")
    if len(entropy) != 10:
        raise InvalidId(f"{len(entropy)} bytes of entropy", "pass exactly 10 random bytes")
    noise = int.from_bytes(entropy, "big")
    value = at_ms << 80 | _V7 | (noise >> 68) << 64 | _VARIANT | noise & (1 << 62) - 1
    return RunId(f"r_{value:032x}")


def is_run_id(text: str) -> bool:
    """Whether the text has the form of a run id."""
    return _RUN_ID.fullmatch(text) is not None


def parse_run_id(text: str) -> RunId:
    if not _RUN_ID.fullmatch(text):
        raise InvalidId(
            f"{text!r} is not a run id",
            "a run id is 'r_' and 32 hex digits, as `start` returned it",
        )
    return RunId(text)


def message_guid(run_id: RunId, *parts: str) -> Guid:
    """The GUID of a message to `run_id` with this content: the same parts give the same GUID.

    A result's parts are its step and logical attempt, so a result that is sent twice is one message.
    """
    return Guid(f"m_{run_id[2:]}_{digest_of(*map(_utf8, parts)).hex()[:32]}")


def guid_prefix(run_id: RunId) -> str:
    """Common prefix of the GUIDs of all messages first sent to this run or mailbox."""
    return f"m_{run_id[2:]}"


def guid_run(guid: str) -> RunId:
    """The run that a message was first sent to."""
    match = _GUID.fullmatch(guid)
    if match is None:
        raise InvalidId(
            f"{guid!r} is not a message GUID", "make GUIDs with `message_guid(run_id, ...)`"
        )
    return RunId(f"r_{match[1]}")


def require_guid_of(guid: str, run_id: RunId) -> Guid:
    """Refuse a GUID that was made for another run."""
    origin = guid_run(guid)
    if origin != run_id:
        raise GuidReused(
            f"message {guid!r} belongs to run {origin!r}, not to {run_id!r}",
            "a GUID names one message to one run; make a new one for each run",
        )
    return Guid(guid)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidId(
            f"{text!a} has no UTF-8 form ({error})", "take out the lone surrogates"
        ) from error


def digest_of(*parts: bytes) -> bytes:
    """SHA-256 over the parts, each led by its length, so that no two lists of parts collide."""
    h = sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "big"))
        h.update(part)
    return h.digest()


@dataclass(frozen=True, slots=True)
class PromiseId:
    """A path in a call tree: the root's hash, and the sequence number at each depth.

    Replay relies on this: the same code on the same path allocates the same ids.
    """

    root: bytes
    path: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.root) != 32:
            raise InvalidId(
                f"a promise root of {len(self.root)} bytes", "make it with `promise_root`"
            )
        if len(self.path) > MAX_DEPTH:
            raise DepthExceeded(
                f"call tree is {len(self.path)} deep at {self!s:.40}...",
                f"at most {MAX_DEPTH} levels may nest; start a child run instead",
            )
        for number in self.path:
            if not 0 <= number <= MAX_SEQUENCE:
                raise InvalidId(
                    f"sequence number {number} in {self!s:.40}", f"use 0 to {MAX_SEQUENCE}"
                )

    def __str__(self) -> str:
        return ".".join(("root", *map(str, self.path)))

    @property
    def step_id(self) -> StepId:
        """Its id in the run's journal and ledger."""
        return StepId(str(self))

    @property
    def depth(self) -> int:
        return len(self.path)

    @property
    def is_execution(self) -> bool:
        return not self.path

    def child(self, seq: int) -> "PromiseId":
        """The id of this node's `seq`-th operation."""
        return PromiseId(self.root, (*self.path, seq))

    def parent(self) -> "PromiseId | None":
        """The id to notify on completion; `None` for the root."""
        return PromiseId(self.root, self.path[:-1]) if self.path else None

    def execution_root(self) -> "PromiseId":
        """The id of the run, whose journal has this promise."""
        return PromiseId(self.root)

    @classmethod
    def parse(cls, text: str, root: bytes) -> "PromiseId":
        """Parse `root.0.1`, under the run's root hash."""
        if not _PROMISE.fullmatch(text):
            raise InvalidId(f"{text!r} is not a promise id", "write it as 'root' or 'root.0.1'")
        return cls(root, tuple(int(number) for number in text.split(".")[1:]))


@dataclass(frozen=True, slots=True)
class JoinSetId:
    """A join set's path in the call tree: allocated like a promise, but not one."""

    promise: PromiseId

    def __str__(self) -> str:
        return str(self.promise)

    @property
    def set_id(self) -> SetId:
        return SetId(str(self.promise))


def promise_root(digest: bytes, parent: str | None, key: str) -> bytes:
    """The root hash of a run: which code, called from where, under which key.

    `parent` is the address of the step that the run is a child of, as its first entry names it.
    """
    return digest_of(digest, b"" if parent is None else _utf8(parent), _utf8(key))
