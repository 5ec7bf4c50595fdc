"""Names that a run's own place in the world gives: asked for twice, they are the same.

Whatever a program sends is named by the run and the step that sent it, so that sending it again after a
crash sends nothing new.
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
    """The message that carries a result. Whoever executes the attempt, and however often: the same one."""
    return message_guid(run_id, "result", step, str(attempt))


def signal_guid(run_id: RunId, name: str, sender: str) -> Guid:
    """A signal to a run, or to the chain that began with it; `sender` names the act of sending."""
    return message_guid(run_id, "signal", name, sender)


def cancel_guid(run_id: RunId) -> Guid:
    """The request to stop: a run, or the chain that began with it, is asked once, whoever asks."""
    return message_guid(run_id, "cancel")


def child_run_id(parent: RunId, step: StepId) -> RunId:
    """The run that a step of another run is. It sorts beside its parent."""
    at_ms = int(parent[2 : 2 + _V7_TIME_HEX], 16)
    return new_run_id(at_ms, sha256(f"{parent}/{step}".encode()).digest()[:10])


def next_run_id(run_id: RunId) -> RunId:
    """The run that continues another. It sorts after it, and so the runs of a chain in their order."""
    at_ms = int(run_id[2 : 2 + _V7_TIME_HEX], 16) + 1
    return new_run_id(at_ms, sha256(f"{run_id}/continued".encode()).digest()[:10])


def parent_address(parent: RunId, step: StepId) -> str:
    """How a child remembers whom to tell."""
    return f"{parent}/{step}"


def parse_parent(address: str) -> tuple[RunId, StepId]:
    run_id, _, step = address.partition("/")
    return RunId(run_id), StepId(step)


def idempotency_text(run_id: RunId, step: StepId) -> str:
    """What `perdure.key()` gives a task: the same in every attempt of the step."""
    return sha256(f"{run_id}|{step}|1".encode()).hexdigest()
