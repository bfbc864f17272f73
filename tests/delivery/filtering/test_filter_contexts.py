"""RULES 31: what a filter is evaluated over, how much of it is made, and what bounds it."""

import orjson
import pytest

from syncbrok.delivery.filtering.filter_contexts import FilterContexts, count_values
from syncbrok.delivery.filtering.message_filter import compile_filter
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.facts import Reason, StoredMessage
from syncbrok.model.message import ParentFailure, Scope

ORDER = {"name": "x", "amount": 12.5, "customer": {"tags": ["a", "b"]}, "items": [{"sku": str(i)} for i in range(50)]}
HEADERS = (("x-kind", "order"), ("ce-type", "a%20b"), ("ce-id", "1"))


def message(content: bytes, sequence: int = 1) -> StoredMessage:
    policy = ParentFailure.FAIL
    placed = (sequence, 0, b"x" * 16, 1, sequence, 0, Scope.ALL, policy, (), "k", "", b"", 0, 0)
    return StoredMessage(*placed, "application/json", HEADERS, content)


def says(text: str, content: bytes = orjson.dumps(ORDER)) -> tuple[Reason, bytes]:
    return FilterContexts().verdict(compile_filter(text), message(content), "shop")[:2]


@pytest.mark.parametrize(
    "text",
    [
        "queue == 'shop' && key == 'k' && content_type == 'application/json' && size > 100",
        "headers['x-kind'] == 'order' && headers.size() == 3 && !('x-none' in headers)",
        "ce.type == 'a b' && ce['id'] == '1'",
        "data.amount > 12 && data['name'].startsWith('x') && data.customer.tags[1] == 'b'",
        "data.items.exists(one, one.sku == '49') && has(data.name) && !has(data.none)",
        "data.customer.tags.size() == 2 && data.name.matches('^x$')",
        "data != null && type(data.amount) == double",
    ],
)
def test_each_variable_is_there(text: str) -> None:
    """RULES 31: queue, key, content_type, size, headers, ce (decoded) and data are what the message says."""
    assert says(text) == (Reason.NONE, b"")


def test_what_is_no_json_or_too_large_is_null() -> None:
    """RULES 31: ``data`` is null where the content is no JSON, or has more than 64 KiB; ``ce`` is {} for no event."""
    assert says("data == null", b"\xff\xfe")[0] is Reason.NONE
    assert says("data == null", orjson.dumps("y" * limits.filter_data_bytes_max))[0] is Reason.NONE
    assert says("data == null", b"{}")[0] is Reason.FILTERED
    bare = message(b"{}")._replace(headers=())
    assert FilterContexts().verdict(compile_filter("ce == {} && headers == {}"), bare, "shop").reason is Reason.NONE


@pytest.mark.parametrize("text", ["data.none == 1", "data.name", "data.name > 1", "1 / 0 == 1", "ce.none == 'a'"])
def test_what_is_neither_true_nor_false_is_an_error_with_words(text: str) -> None:
    """RULES 31: an error, or another answer than a boolean, is ``filter_error``, and says what it was."""
    reason, detail = says(text)
    assert reason is Reason.FILTER_ERROR
    assert detail


def test_only_what_is_named_is_made_of_the_content() -> None:
    """PERFORMANCE: a filter that looks at one name costs no more for a content with thousands of other values."""
    large = orjson.dumps({"kind": "x", "rest": [[0] * 100] * 200})
    one = FilterContexts().verdict(compile_filter("data.kind == 'x'"), message(large), "shop")
    assert (one.reason, one.work_us < 200) == (Reason.NONE, True)


def test_a_content_of_too_many_values_is_an_error_and_takes_no_time() -> None:
    """RULES 31: what a filter would go through is counted first; 64 KiB of zeros hold nothing up."""
    zeros = b"[" + b"0," * 32_000 + b"0]"
    assert says("data.all(x, x == 0)", zeros) == says("data.size() > 1", zeros)
    assert says("data.all(x, x == 0)", zeros)[0] is Reason.FILTER_ERROR
    assert count_values([[0] * 10] * 10, 50) == 51


def test_what_one_filter_looks_at_is_not_counted_for_another() -> None:
    """RULES 31: a filter is an error for what it would go through itself, whatever others of the message name."""
    content = orjson.dumps({"many": [0] * 25_000, "some": [0] * 5_000, "few": ["a"]})
    several = [
        ("data.many.all(one, one == 0)", Reason.FILTER_ERROR),
        ("headers['x-kind'] == 'order'", Reason.NONE),
        ("data.some.all(one, one == 0)", Reason.NONE),
        ("data.few.exists(one, one == 'a' || one == 'b' || one == 'c' || one == 'd' || one == 'e')", Reason.NONE),
        ("data.few[0] == 'b'", Reason.FILTERED),
    ]
    for order in (several, several[::-1]):
        contexts, one = FilterContexts(), message(content)
        said = [(text, contexts.verdict(compile_filter(text), one, "shop").reason) for text, _ in order]
        assert said == order


def test_a_part_of_the_content_is_made_once_for_all_who_look_at_it() -> None:
    """RULES 31, a further filter costs little: of a message that others were asked about meanwhile nothing is made
    anew, and no part for what other filters look at."""
    contexts = FilterContexts()
    content = orjson.dumps({f"name{at}": at for at in range(9)} | {"large": [[0] * 10] * 10})
    texts = [f"data.name{at} == {at}" for at in range(9)] + ["data.large.size() == 10"]
    work_us = [
        [contexts.verdict(compile_filter(text), message(content, one), "shop").work_us for one in range(1, 91)]
        for text in (*texts, "headers['x-kind'] == 'order'", *texts)
    ]
    parsed, small, large, again = work_us[0], work_us[1:9], work_us[9], work_us[11:]
    assert parsed == [len(content) // 500 + 2] * 90
    assert small == [[2] * 90] * 8
    assert large == [222] * 90
    assert again == [[1] * 90] * 10, "an answer alone counts as 1"


def test_deep_documents_are_taken() -> None:
    """RULES 31: a document a thousand lists deep is evaluated as any other."""
    assert says("data == data", b"[" * 1_000 + b"]" * 1_000)[0] is Reason.NONE


def test_filters_share_what_was_made_and_forget_what_is_erased() -> None:
    """RULES 31 and 32: the second filter of a message finds its variables; of an erased message nothing is kept."""
    contexts, wanted = FilterContexts(), compile_filter("data.amount > 1")
    first = contexts.verdict(wanted, message(orjson.dumps(ORDER)), "shop")
    again = contexts.verdict(wanted, message(b'{"amount": 0}'), "shop")
    assert (first.reason, again.reason) == (Reason.NONE, Reason.NONE), "the same sequence is the same message"
    assert again.work_us < first.work_us
    contexts.forget((1, 2))
    assert contexts.verdict(wanted, message(b'{"amount": 0}'), "shop").reason is Reason.FILTERED


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data.all(x, size(data + data) > 0)", "line 1, column 18"),
        ("data.all(x, headers.size() > 0)", "headers"),
        ("data.all(data, true)", "variable"),
        ("data.all(x, x.matches('a'))", "matches"),
        ("key.matches('\\\\w{200}')", "braces"),
        ("key.matches('" + "a" * 70 + "')", "64 characters"),
        ("key.matches(r'\\w\\w\\w\\w\\w')", "classes"),
        ("'a' + key + key + key + key + key + key + key + key + key == 'b'", "8 times"),
        ("'''a''' == key", "three quotes"),
        ("[1].transformList(i, v, v) == []", "transformList"),
        ("kee == 'a'", "'key'"),
    ],
)
def test_what_could_hold_a_core_is_refused(text: str, words: str) -> None:
    """RULES 31: nested loops, patterns that are costly to build, long joins, and what the tokens cannot tell."""
    with pytest.raises(BadSetting) as refused:
        compile_filter(text)
    assert words in refused.value.detail
