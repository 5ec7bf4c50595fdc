"""The quick way to append to a journal. It is compiled where there is a C compiler; nothing needs it."""

from collections.abc import Mapping, Sequence

from perdure.core.journal.events import Event
from perdure.core.journal.journal import Appended, Journal
from perdure.core.journal.state import State
from perdure.core.ledger import AccountId

def adopt(names: Mapping[str, object]) -> None: ...
def append(journal: Journal, events: Sequence[Event], at_ms: int, entropy: bytes) -> Appended: ...
def admit(state: State, event: Event, postings: dict[AccountId, int]) -> bool: ...
