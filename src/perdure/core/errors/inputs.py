"""The caller's value is wrong, and nothing was changed."""

from typing import TYPE_CHECKING

from perdure.core.errors.base import PerdureError

if TYPE_CHECKING:
    from perdure.core.graph.model import Problem


class InputError(PerdureError):
    """The caller's value is wrong; nothing was changed."""

    code = "input"


class InvalidId(InputError):
    code = "invalid-id"


class InvalidUrl(InputError):
    code = "invalid-url"


class GuidReused(InputError):
    code = "guid-reused"


class DepthExceeded(InputError):
    code = "depth-exceeded"


class TurnTooLong(InputError):
    code = "turn-too-long"


class PayloadTooLarge(InputError):
    code = "payload-too-large"


class NotEncodable(InputError):
    code = "not-encodable"


class SecretExposed(NotEncodable):
    """The value holds a secret that a task of this process has read."""

    code = "secret-exposed"


class UnknownSecret(InputError):
    """No provider of this engine has the secret for the scope of the run."""

    code = "unknown-secret"


class NoArtifactStore(InputError):
    """A task stores an artifact, and the engine was given no place for artifacts."""

    code = "no-artifact-store"


class NotDecodable(InputError):
    code = "not-decodable"


class DuplicateName(InputError):
    code = "duplicate-name"


class UnknownName(InputError):
    code = "unknown-name"


class ForkDiverged(InputError):
    """The registered program does not repeat the entries that a fork keeps."""

    code = "fork-diverged"


class GraphInvalid(InputError):
    """An invalid graph. `problems` are all problems found, in source order."""

    code = "graph-invalid"

    def __init__(self, what: str, remedy: str, problems: "tuple[Problem, ...]") -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, problems)
        self.problems = problems


class NotDeterministic(InputError):
    code = "not-deterministic"


class OutsideRun(InputError):
    code = "outside-run"


class CallReused(InputError):
    code = "call-reused"


class NeverAwaited(InputError):
    code = "never-awaited"


class ForeignAwait(InputError):
    code = "foreign-await"


class JoinSetClosed(InputError):
    code = "join-set-closed"


class KeyReused(InputError):
    """`run_id` is the run that holds the key."""

    code = "key-reused"

    def __init__(self, run_id: str, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.args = (run_id, what, remedy)
        self.run_id = run_id


class KeySpent(InputError):
    """`run_id` is the run that holds the key. It failed, or was cancelled: `status` says which."""

    code = "key-spent"

    def __init__(self, run_id: str, status: str, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.args = (run_id, status, what, remedy)
        self.run_id = run_id
        self.status = status


class SignalReused(InputError):
    """The `id` of a signal, or of an answer, that was sent before with another value; or of a fork, for another act."""

    code = "signal-reused"


class VersionExists(InputError):
    """The version was deployed with other content; a deployed version never changes."""

    code = "version-exists"


class UnknownBus(InputError):
    """No engine was opened with an event bus of that name on this store."""

    code = "unknown-bus"


class UnknownSchedule(InputError):
    code = "unknown-schedule"


class UnknownVersion(InputError):
    """A version of a program that was not deployed."""

    code = "unknown-version"


class NotActive(InputError):
    """The version of a graph is deployed but not active: new runs can't use it."""

    code = "not-active"


class UnreadableProgram(InputError):
    """A newer Perdure deployed the graph, and this one can't read it."""

    code = "unreadable-program"


class UnknownStep(InputError):
    """The run has no such step, or the step waits for no answer."""

    code = "unknown-step"


class ForbiddenStatement(InputError):
    """SQL that a transaction may not execute: Perdure's own tables, or what would end the transaction."""

    code = "forbidden-statement"


class ExpressionProblem(InputError):
    """`lineno` (from 1) and `column` (from 0) say where in the text or the source it is."""

    code = "expression-problem"

    def __init__(self, what: str, remedy: str, lineno: int, column: int) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, lineno, column)
        self.lineno = lineno
        self.column = self.col_offset = column  # `col_offset` is its name in syntax trees


class CannotCompile(GraphInvalid):
    """A function that can't be compiled to a graph. `problems` are in line order."""

    code = "cannot-compile"


class RunClosed(InputError):
    """The run has ended and accepts nothing more."""

    code = "run-closed"
