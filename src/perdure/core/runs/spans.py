"""Durations for people."""


def span_text(milliseconds: int) -> str:
    """A duration for people: `40 ms`, `1.4 s`, `12 s`, `3 min 20 s`, `5 h 2 min`, `3 d 4 h`."""
    seconds = max(0, milliseconds) / 1000
    if seconds < 1:
        return f"{max(0, milliseconds)} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, unit, smaller, part in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {part}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
