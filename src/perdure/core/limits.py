"""Hard limits, each with its reason. A limit is checked before anything is changed."""

from typing import Final

LEDGER_DIGITS: Final = 15
"""Width of every account: fits a 64-bit integer and a float64 without loss."""

MAX_BALANCE: Final = 10**LEDGER_DIGITS - 1

MAX_ATTEMPTS: Final = 99
"""Entry attempts have two digits; the hundredth would carry into the finalize digit."""

MAX_ENTRIES: Final = 99_999_999
"""Leg-2 entries have eight digits; one more would carry into the reserved digits."""

MAX_DEPTH: Final = 64
"""Depth of a call tree: bounds the length of ids, which are part of every key."""

MAX_STEP_BYTES: Final = 1024
"""A step's id is part of keys, and Postgres keeps no key over 2,704 bytes. The deepest path of a workflow has 708."""

MAX_SEQUENCE: Final = 2**32 - 1
"""Children of one node of the call tree, and the width of each number of a path."""

MAX_DECISIONS: Final = 100_000
"""Verbs that a workflow calls between two waits: the host blocks meanwhile and keeps all decisions in memory."""

MAX_PAYLOAD_BYTES: Final = 2 * 1024 * 1024
"""One input, result or value. A larger one belongs in an artifact store, with a reference here."""

MAX_LARGE_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
"""One value that goes to the artifact store because it is over the limit of payloads. It is in memory as a whole."""

MAX_NAME_LENGTH: Final = 255
"""Names of programs, tasks, signals, queues, hosts and scopes: they are parts of keys."""

MAX_KEY_LENGTH: Final = 1024
"""A start key or an idempotency key that the caller chooses."""

MAX_ASK_BYTES: Final = 1000
"""The text that a person sees while a run waits for an answer. Every entry about that wait has it."""

MAX_SCHEMA_BYTES: Final = 4000
"""The JSON Schema of such an answer: as the text, it is in every entry about the wait."""

MAX_TIME_MS: Final = 2**63 - 1
"""The largest time: times are 64-bit integers."""

MAX_EXPRESSION_LENGTH: Final = 10_000
"""Characters of an expression. Longer code belongs in a task."""

MAX_EXPRESSION_NODES: Final = 1_000
"""Parts of an expression. With no loop around them, all of them together take a fraction of a millisecond."""

MAX_EXPRESSION_DEPTH: Final = 50
"""Parts within parts of an expression: far from the depth at which the parser or an evaluation runs out of stack."""

MAX_EXPRESSION_WORK: Final = 1_000_000
"""Elementary operations of one evaluation, about 100 ns each: it blocks the host's event loop."""

MAX_EXPRESSION_TEXT: Final = 1_000_000
"""Characters of a text that an expression makes: half of what a payload holds."""

MAX_EXPRESSION_ITEMS: Final = 100_000
"""Items of a list or dict that an expression makes: one evaluation could not process more."""

MAX_EXPRESSION_BITS: Final = 4_096
"""Size of an integer that an expression makes: the time for arithmetic grows with the square of it."""

MAX_FORMAT_WIDTH: Final = 1_000
"""Width and precision in a format specification: wider than any column, and too narrow to make a large text."""
