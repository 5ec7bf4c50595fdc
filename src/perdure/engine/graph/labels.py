"""Digits of a graph run: entries that certify a phase of a step and change no state."""

from perdure.core.journal.events import Posted, Posting
from perdure.core.ledger import AccountId

ENTERED = "entry"
"""The label of an answer's entry, which stands before the fact that it is of."""


def posted(label: str, *postings: tuple[AccountId, int], semaphore: int = 0) -> Posted:
    return Posted(label, tuple([Posting(*each) for each in postings]), semaphore)
