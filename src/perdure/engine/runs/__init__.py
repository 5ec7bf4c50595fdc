"""What workflow and graph runs share: the warm run, its record and promises, and the facts that a host feeds to it.

A fact is an event that happened to the run. Hosts feed facts through `attempts`, `doubts` and `messages`; the machine
decides what follows, and `warm` writes the changes and their effects into a bundle.
"""
