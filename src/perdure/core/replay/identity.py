"""Deterministic ids of messages and runs.

Each message id depends on the run and the step that sends it, so sending it again after a crash sends nothing new.
"""

from hashlib import sha256

from perdure.core.ids import Guid, RunId, StepId, message_guid, new_run_id

_V7_TIME_HEX = 12


def timer_guid(run_id: RunId, step: StepId) -> Guid:
    """The message that fires a timer."""
    return message_guid(run_id, "timer", step)


def retry_guid(run_id: RunId, step: StepId, failed_attempt: int) -> Guid:
    """The message that ends a retry's delay."""
    return message_guid(run_id, "retry", step, str(failed_attempt))


def result_guid(run_id: RunId, step: StepId, attempt: int) -> Guid:
    """The message that carries a result: the same for every host and every execution of the attempt."""
    return message_guid(run_id, "result", step, str(attempt))


def signal_guid(run_id: RunId, name: str, sender: str) -> Guid:
    """A signal to a run, or to the chain that began with it; `sender` names the act of sending."""
    return message_guid(run_id, "signal", name, sender)


def cancel_guid(run_id: RunId) -> Guid:
    """The cancel request: one for a run, or for the chain that began with it, whichever process sends it."""
    return message_guid(run_id, "cancel")


def child_run_id(parent: RunId, step: StepId, attempt: int = 1) -> RunId:
    """The id of the child run of a step's attempt. It sorts beside its parent."""
    at_ms = int(parent[2 : 2 + _V7_TIME_HEX], 16)
    address = parent_address(parent, step, attempt)
    return new_run_id(at_ms, sha256(address.encode()).digest()[:10])


def next_run_id(run_id: RunId) -> RunId:
    """The run that continues another. It sorts after it, and so the runs of a chain in their order."""
    at_ms = int(run_id[2 : 2 + _V7_TIME_HEX], 16) + 1
    return new_run_id(at_ms, sha256(f"{run_id}/continued".encode()).digest()[:10])


def parent_address(parent: RunId, step: StepId, attempt: int = 1) -> str:
    """The address of the step, and its attempt, that a child run reports to."""
    return f"{parent}/{step}" if attempt == 1 else f"{parent}/{step}#{attempt}"


def parse_parent(address: str) -> tuple[RunId, StepId, int]:
    """The run, the step and the attempt that an address names."""
    run_id, _, step = address.partition("/")
    name, _, attempt = step.rpartition("#")
    # A step's id ends with its numbers, so a `#` of its name is never before digits alone.
    if name and attempt.isdigit():
        return RunId(run_id), StepId(name), int(attempt)
    return RunId(run_id), StepId(step), 1


def idempotency_text(run_id: RunId, step: StepId, logical_attempt: int = 1) -> str:
    """What `perdure.key()` gives a task: the same in every attempt of one logical attempt of the step."""
    return sha256(f"{run_id}|{step}|{logical_attempt}".encode()).hexdigest()
