import hashlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import DepthExceeded, GuidReused, InvalidId
from perdure.core.ids import (
    JoinSetId,
    PromiseId,
    RunId,
    digest_of,
    guid_run,
    message_guid,
    new_run_id,
    parse_run_id,
    promise_root,
    require_guid_of,
)

ROOT = bytes(range(32))
RUN = new_run_id(1_700_000_000_000, bytes(10))
OTHER_RUN = new_run_id(1_700_000_000_001, bytes(10))

paths = st.lists(st.integers(0, 2**32 - 1), max_size=64).map(tuple)


def length_prefixed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


# Promise ids


def test_root_is_sha256_over_length_prefixed_digest_parent_and_key() -> None:
    parent = "r_0198/root.3.0"
    expected = hashlib.sha256(length_prefixed(b"digest", parent.encode(), b"key")).digest()
    assert promise_root(b"digest", parent, "key") == expected


def test_root_without_a_parent_has_an_empty_caller() -> None:
    expected = hashlib.sha256(length_prefixed(b"digest", b"", b"key")).digest()
    assert promise_root(b"digest", None, "key") == expected


def test_root_differs_if_a_boundary_between_parts_shifts() -> None:
    roots = {promise_root(b"abc"[:cut], None, "abc"[cut:]) for cut in range(4)}
    assert len(roots) == 4


def test_root_differs_by_digest_parent_and_key() -> None:
    roots = {
        promise_root(b"d", None, "k"),
        promise_root(b"e", None, "k"),
        promise_root(b"d", None, "l"),
        promise_root(b"d", "r_0198/root", "k"),
        promise_root(b"d", "r_0198/root.0", "k"),
    }
    assert len(roots) == 5


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_digests_of_different_parts_differ(left: list[bytes], right: list[bytes]) -> None:
    assert (digest_of(*left) == digest_of(*right)) == (left == right)


def test_child_adds_its_number_to_the_path() -> None:
    assert PromiseId(ROOT, (0,)).child(1) == PromiseId(ROOT, (0, 1))


def test_parent_drops_the_last_number() -> None:
    assert PromiseId(ROOT, (0, 1)).parent() == PromiseId(ROOT, (0,))


def test_execution_has_no_parent() -> None:
    assert PromiseId(ROOT).parent() is None


def test_execution_root_is_depth_zero_of_the_same_tree() -> None:
    root = PromiseId(ROOT, (4, 2)).execution_root()
    assert (root, root.depth, root.is_execution) == (PromiseId(ROOT), 0, True)


def test_promise_of_a_step_is_no_execution() -> None:
    assert not PromiseId(ROOT, (4,)).is_execution


def test_same_place_under_another_root_is_another_promise() -> None:
    assert PromiseId(ROOT, (1,)) != PromiseId(bytes(32), (1,))


def test_text_names_the_path_from_the_root() -> None:
    assert str(PromiseId(ROOT, (0, 1))) == PromiseId(ROOT, (0, 1)).step_id == "root.0.1"


@given(paths)
def test_text_reads_back_as_the_same_promise(path: tuple[int, ...]) -> None:
    promise = PromiseId(ROOT, path)
    assert PromiseId.parse(str(promise), ROOT) == promise


@pytest.mark.parametrize(
    "text",
    [
        "",
        "root.",
        ".root",
        "root.01",
        "Root.1",
        "root.-1",
        "root.+1",
        "root.1.",
        "root..1",
        "root.1 ",
        "root.1\n",
        "root.\u0661",
        "root.a",
        "0.1",
        "root.4294967296",
        "root.99999999999",
    ],
)
def test_bad_promise_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidId):
        PromiseId.parse(text, ROOT)


def test_largest_number_of_a_path_is_allowed() -> None:
    assert PromiseId.parse("root.4294967295", ROOT).path == (2**32 - 1,)


@pytest.mark.parametrize("number", [-1, 2**32])
def test_child_number_out_of_range_is_refused(number: int) -> None:
    with pytest.raises(InvalidId, match=str(number)):
        PromiseId(ROOT).child(number)


def test_depth_64_is_allowed() -> None:
    assert PromiseId(ROOT, (1,) * 63).child(1).depth == 64


def test_depth_65_is_refused() -> None:
    with pytest.raises(DepthExceeded, match=r"65 deep at root\.1\.1.*at most 64"):
        PromiseId(ROOT, (1,) * 64).child(1)


def test_text_of_depth_65_is_refused() -> None:
    with pytest.raises(DepthExceeded):
        PromiseId.parse("root" + ".0" * 65, ROOT)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_root_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(InvalidId, match=f"{length} bytes"):
        PromiseId(bytes(length))


def test_join_set_id_is_not_a_promise_id() -> None:
    promise = PromiseId(ROOT, (2,))
    join_set: object = JoinSetId(promise)
    assert not isinstance(join_set, PromiseId)
    assert join_set != promise


def test_join_set_id_has_the_text_of_its_place() -> None:
    join_set = JoinSetId(PromiseId(ROOT, (2,)))
    assert str(join_set) == join_set.set_id == "root.2"


# Run ids


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_run_id_is_a_uuid_of_version_7(at_ms: int, entropy: bytes) -> None:
    value = uuid.UUID(hex=new_run_id(at_ms, entropy)[2:])
    assert (value.version, value.variant) == (7, uuid.RFC_4122)


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_run_id_begins_with_its_time(at_ms: int, entropy: bytes) -> None:
    assert uuid.UUID(hex=new_run_id(at_ms, entropy)[2:]).int >> 80 == at_ms


@given(
    st.integers(0, 2**48 - 2),
    st.binary(min_size=10, max_size=10),
    st.binary(min_size=10, max_size=10),
)
def test_run_id_of_a_later_time_sorts_later(at_ms: int, first: bytes, second: bytes) -> None:
    assert new_run_id(at_ms, first) < new_run_id(at_ms + 1, second)


def test_run_id_keeps_74_bits_of_entropy() -> None:
    ids = {new_run_id(0, (1 << bit).to_bytes(10, "big")) for bit in range(80)}
    assert len(ids) == 74 + 1  # version and variant overwrite six bits; those ids are equal


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_run_id_reads_back(at_ms: int, entropy: bytes) -> None:
    run_id = new_run_id(at_ms, entropy)
    assert parse_run_id(run_id) == run_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "r_",
        RUN[2:],
        "x_" + RUN[2:],
        RUN[:-1],
        RUN + "0",
        RUN + "\n",
        RUN.upper(),
        "r_" + "g" * 32,
    ],
)
def test_bad_run_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidId, match="is not a run id"):
        parse_run_id(text)


@pytest.mark.parametrize("at_ms", [-1, 2**48])
def test_time_that_does_not_fit_a_run_id_is_refused(at_ms: int) -> None:
    with pytest.raises(InvalidId, match=str(at_ms)):
        new_run_id(at_ms, bytes(10))


@pytest.mark.parametrize("length", [0, 9, 11])
def test_run_id_needs_ten_bytes_of_entropy(length: int) -> None:
    with pytest.raises(InvalidId, match=f"{length} bytes of entropy"):
        new_run_id(0, bytes(length))


# Message GUIDs


def test_same_parts_make_the_same_guid() -> None:
    assert message_guid(RUN, "root.1", "1") == message_guid(RUN, "root.1", "1")


@pytest.mark.parametrize(
    ("run_id", "parts"),
    [
        (OTHER_RUN, ("root.1", "1")),
        (RUN, ("root.1", "2")),
        (RUN, ("root.", "11")),
        (RUN, ("root.11",)),
    ],
)
def test_other_run_or_parts_make_another_guid(run_id: RunId, parts: tuple[str, ...]) -> None:
    assert message_guid(run_id, *parts) != message_guid(RUN, "root.1", "1")


def test_guid_names_the_run_that_it_was_made_for() -> None:
    assert guid_run(message_guid(RUN, "x")) == RUN


def test_guid_of_the_run_is_accepted() -> None:
    guid = message_guid(RUN, "x")
    assert require_guid_of(guid, RUN) == guid


def test_guid_of_another_run_is_refused() -> None:
    with pytest.raises(GuidReused, match=f"{OTHER_RUN}.*not to '{RUN}'"):
        require_guid_of(message_guid(OTHER_RUN, "x"), RUN)


@pytest.mark.parametrize(
    "guid", ["", "m_", RUN, message_guid(RUN, "x")[:-1], message_guid(RUN, "x") + "\n", "42"]
)
def test_guid_of_another_form_is_refused(guid: str) -> None:
    with pytest.raises(InvalidId, match="is not a message GUID"):
        require_guid_of(guid, RUN)


def test_text_without_a_utf8_form_is_refused_as_a_name() -> None:
    with pytest.raises(InvalidId, match="lone surrogates"):
        message_guid(RUN, "\ud800")
    with pytest.raises(InvalidId, match="lone surrogates"):
        promise_root(b"digest", None, "\ud800")
