"""What may be posted, by name. Plain integers: they are summed and stored on the hot path.

A posting may combine several (`ATTEMPT + LEG1_DONE`); it is judged by where it leads, as a whole.
"""

from typing import Final

AUTHORIZE: Final = 100_000_000_000_000
"""Activity: born authorized. Only inside `TRIGGER_SEED`."""

FINALIZE: Final = 200_000_000_000_000
"""Activity: no new leg-2 entry. With step 3 of the message that closed the run, never otherwise."""

ATTEMPT: Final = 1_000_000_000_000
"""Activity: leg 1 is entered, for the first time or again after a crash."""

LEG1_DONE: Final = 100_000_000_000
"""Activity: with the durable work of leg 1."""

ENTRY: Final = 1
"""Activity: leg 2 is entered; also pre-seeds a step that cycles, with `LEG1_DONE`."""

TRIGGER_SEED: Final = AUTHORIZE + ATTEMPT + LEG1_DONE + ENTRY
"""Activity: a trigger is born with both legs behind it."""

CLOSED: Final = 100_000_000_000
"""Message: step 2 brought the semaphore to its threshold. Only together with `SPAWNED`."""

WORK_DONE: Final = 10_000_000_000
"""Message, step 1: with the work's writes; for a trigger, with the birth of the run."""

SPAWNED: Final = 1_000_000_000
"""Message, step 2: with the children and the semaphore's delta."""

COMPLETED: Final = 100_000_000
"""Message, step 3: with the run's completion tasks."""
