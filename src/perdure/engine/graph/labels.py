"""`Posted` events of a graph run: each certifies one phase of a step and changes nothing but digits."""

from perdure.core.journal.events import Posted, Posting
from perdure.core.ledger import AccountId


def posted(label: str, *postings: tuple[AccountId, int], semaphore: int = 0) -> Posted:
    return Posted(label, tuple([Posting(*each) for each in postings]), semaphore)
