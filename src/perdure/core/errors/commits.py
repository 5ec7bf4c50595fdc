"""What was not written, and transactions that can't go on."""

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


class UnknownRun(CommitRejected):
    """The store has no run of that id."""

    code = "unknown-run"


class RunEnded(CommitRejected):
    """The run is over: what comes for its streams comes too late."""

    code = "run-ended"


class StaleToken(CommitRejected):
    code = "stale-token"


class BundleRefused(CommitRejected):
    code = "bundle-refused"


class ReadinessOverflow(BundleRefused):
    """A node's predecessors were counted wrong: more were resolved than it has, or their number changed."""

    code = "readiness-overflow"


class TransactionError(PerdureError):
    """A transaction that can't go on. Nothing of it was written."""

    code = "transaction"


class StatementFailed(TransactionError):
    """The database refused a statement. The driver's own error is its cause."""

    code = "statement-failed"


class TransactionOver(TransactionError):
    """The transaction was committed or rolled back, or will be rolled back."""

    code = "transaction-over"


class TransactionInterrupted(TransactionError):
    """The database ended the transaction: it may be begun again as it was."""

    code = "transaction-interrupted"


class NotCommitted(TransactionError):
    """The transaction that a run or a question belongs to is not committed yet."""

    code = "not-committed"
