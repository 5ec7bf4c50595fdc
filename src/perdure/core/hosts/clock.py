"""Sets a host's clock by the store's; the round-trip time bounds the error."""


def corrected(offset_ms: int | None, clock_ms: int, began_ms: int, ended_ms: int) -> int:
    """The offset of the store's clock to the host's counter.

    The store read its clock as `clock_ms` at some moment between two readings of the counter, so its offset is within
    two bounds. An offset that is within them is kept, so that a slow answer does not make time jitter; one that is
    not goes to the nearer bound. Without one, the middle is as good as can be known.
    """
    least, most = clock_ms - ended_ms, clock_ms - began_ms
    if offset_ms is None:
        return (least + most) // 2
    return min(max(offset_ms, least), most)
