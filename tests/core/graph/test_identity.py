import pytest

from perdure.core.errors import InputError
from perdure.core.graph.identity import mailbox_of
from perdure.core.ids import message_guid, parse_run_id, require_guid_of


def test_a_mailbox_has_the_form_of_a_run_id() -> None:
    mailbox = mailbox_of("approved", "order-42")
    assert parse_run_id(mailbox) == mailbox
    guid = message_guid(mailbox, "signal")
    assert require_guid_of(guid, mailbox) == guid


def test_each_topic_and_key_has_its_own_mailbox() -> None:
    names = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a", "b\u20ac"), ("bc", "a")]
    assert len({mailbox_of(*name) for name in names}) == len(names)
    assert mailbox_of("a", "b") == mailbox_of("a", "b") == "r_e64662934d27ec3e8b1d018404c97f10"


@pytest.mark.parametrize("text", ["a\0b", "a\udc80b"])
def test_a_topic_or_key_that_a_store_can_not_keep_has_no_mailbox(text: str) -> None:
    with pytest.raises(InputError, match="topic"):
        mailbox_of(text, "key")
    with pytest.raises(InputError, match="key"):
        mailbox_of("topic", text)
