"""Hints as text: what fits, what does not, and what can't be read."""

from perdure.core.hosts.hints import (
    MAX_HINT_BYTES,
    Awaited,
    Hint,
    OutgoingHint,
    channel_name,
    decode_hint,
)
from perdure.core.ids import HostId, RunId

HERE = HostId("h_here")


def run(number: int) -> RunId:
    return RunId(f"r_{number:032x}")


def test_a_hint_is_read_as_it_was_collected() -> None:
    assert OutgoingHint().is_empty
    outgoing = OutgoingHint()
    outgoing.messages = True
    outgoing.asked.add(Awaited.END)
    outgoing.queues.add("mail")
    outgoing.changed.update({run(1), run(2)})
    assert not outgoing.is_empty
    assert decode_hint(outgoing.encode(HERE)) == Hint(
        HERE,
        messages=True,
        queues=frozenset({"mail"}),
        changed=frozenset({run(1), run(2)}),
        awaits=True,
    )


def test_each_part_alone_makes_a_hint() -> None:
    asked = {"awaits": Awaited.END, "follows": Awaited.GROWTH}
    for part in ("messages", "look", "has_more", *asked):
        outgoing = OutgoingHint()
        if part in asked:
            outgoing.asked.add(asked[part])
        else:
            setattr(outgoing, part, True)
        assert not outgoing.is_empty
        hint = decode_hint(outgoing.encode(HERE))
        assert hint is not None
        assert [name for name in Hint.__struct_fields__ if getattr(hint, name) is True] == [part]


def test_a_list_that_does_not_fit_becomes_a_look_at_everything() -> None:
    outgoing = OutgoingHint()
    outgoing.changed.update(map(run, range(1000)))
    outgoing.queues.update(f"queue {number}" for number in range(1000))
    outgoing.asked.add(Awaited.GROWTH)
    data = outgoing.encode(HERE)
    assert len(data) <= MAX_HINT_BYTES
    assert decode_hint(data) == Hint(HERE, look=True, has_more=True, follows=True)


def test_lists_that_fit_stay() -> None:
    outgoing = OutgoingHint()
    outgoing.changed.update(map(run, range(150)))
    data = outgoing.encode(HERE)
    assert len(data) <= MAX_HINT_BYTES
    hint = decode_hint(data)
    assert hint is not None
    assert len(hint.changed) == 150
    assert not hint.has_more


def test_what_is_no_hint_is_none() -> None:
    for data in (b"", b"{", b"[]", b'{"look":true}', b'{"sender":1}', b"\xff\xfe", "no json"):
        assert decode_hint(data) is None


def test_unknown_parts_of_a_newer_version_are_ignored() -> None:
    assert decode_hint(b'{"sender":"h_there","look":true,"later":[1]}') == Hint(
        HostId("h_there"), look=True
    )


def test_names_of_channels_are_short_and_differ() -> None:
    names = {channel_name(HostId(f"h_{'x' * 200}_{number}")) for number in range(100)}
    assert len(names) == 100
    assert {len(name) for name in names} == {24}
