"""Rejected commits, and failed user transactions."""

from perdure.core.errors.base import PerdureError


class CommitRejected(PerdureError):
    code = "commit-rejected"


class StaleFence(CommitRejected):
    code = "stale-fence"


class RunExists(CommitRejected):
    """`run_id` is the run that holds the key."""

    code = "run-exists"

    def __init__(self, run_id: str, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.args = (run_id, what, remedy)
        self.run_id = run_id


class RunJoined(RunExists):
    """The start joined the run that holds its limit. `run_id` is that run."""

    code = "run-joined"


class UnknownRun(CommitRejected):
    """The store has no run of that id."""

    code = "unknown-run"


class RunEnded(CommitRejected):
    """The run has ended: its streams accept no more chunks."""

    code = "run-ended"


class StaleToken(CommitRejected):
    code = "stale-token"


class BundleRefused(CommitRejected):
    code = "bundle-refused"


class ReadinessOverflow(BundleRefused):
    """A node's predecessors were counted wrong: more were resolved than it has, or their number changed."""

    code = "readiness-overflow"


class TransactionError(PerdureError):
    """A transaction that can't continue. It was rolled back."""

    code = "transaction"


class StatementFailed(TransactionError):
    """The database refused a statement. The driver's own error is its cause."""

    code = "statement-failed"


class TransactionOver(TransactionError):
    """The transaction was committed or rolled back, or will be rolled back."""

    code = "transaction-over"


class TransactionInterrupted(TransactionError):
    """The database ended the transaction: the caller may repeat it."""

    code = "transaction-interrupted"


class NotCommitted(TransactionError):
    """The transaction that a run or a question belongs to is not committed yet."""

    code = "not-committed"
