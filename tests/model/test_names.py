"""Names and ids, as the border reads them: which there are, and what is said of those that are none."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.model.errors import BadName, Malformed
from syncbrok.model.names import id_text, issued_by, parse_message_id, parse_queue_name, parse_subscriber_id
from tests.support.http.hostile_names import HOSTILE, REFUSED, fits, names

ANYTHING = st.text(st.characters(exclude_categories=()), max_size=140)


@given(st.one_of(ANYTHING, names(), st.sampled_from(REFUSED)))
def test_a_queue_name_is_what_the_rule_says(text: str) -> None:
    """INTERFACES 5: 1 to 128 characters without Cc, Cf, Cs, Zl, Zp and slash, no blank at either end, not ``.`` or
    ``..``; what is one comes back as it is, code point for code point."""
    if fits(text):
        assert parse_queue_name(text) == text
        return
    with pytest.raises(BadName) as caught:
        parse_queue_name(text)
    caught.value.detail.encode()  # legible, whatever was sent


def test_the_lists_are_what_they_say() -> None:
    """INTERFACES 5: the names that the other tests carry through every door fit the rule; those refused do not."""
    assert all(map(fits, HOSTILE))
    assert not any(map(fits, REFUSED))
    assert len(set(HOSTILE)) == len(HOSTILE)


@pytest.mark.parametrize("text", ["topic a", "\u00e9", "-a", "_a", ".a", "a+b", "a" * 129, ""])
def test_subscribers_and_groups_keep_the_old_rule(text: str) -> None:
    """INTERFACES 5: letters, digits, ``_``, ``.``, ``-``, the first a letter or digit."""
    with pytest.raises(BadName):
        parse_subscriber_id(text)
    assert parse_subscriber_id("a.b_c-D9") == "a.b_c-D9"


@given(st.uuids())
def test_any_uuid_is_an_id(one: uuid.UUID) -> None:
    """RULES 2: an id that this log never issued is an id all the same, of any version and in either case."""
    for text in (str(one), str(one).upper(), f" {one} "):
        assert parse_message_id(text) == one.bytes
    assert id_text(one.bytes) == str(one)


def test_no_log_has_issued_a_uuid_of_another_version() -> None:
    """RULES 2: not even one whose bits name a sequence and fit its tag."""
    key = bytes(range(16))
    for text in ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"):
        assert not issued_by(parse_message_id(text), key)
    with pytest.raises(Malformed):
        parse_message_id("6ba7b810-9dad-11d1-80b4-00c04fd430c8-0")
