"""What a token is for: scopes, and in which queues."""

from hashlib import sha256
from typing import Any

import pytest

from syncbrok.model.errors import BadName, BadSetting
from syncbrok.model.tokens import Token, parse_digest, parse_scopes, parse_token_name

DIGEST = sha256(b"x").hexdigest()


def token(scopes: Any, queues: Any = None) -> Token:
    return Token("t", DIGEST, *parse_scopes(scopes, queues))


def test_only_a_star_at_the_end_is_special() -> None:
    """INTERFACES 1, tokens: a pattern is a queue's name, or how it begins; anything else in it stands for itself."""
    given = token(["publish"], ["shop.*", "bills", "a*b", "c?[d]"])
    for queue in ("shop.", "shop.orders", "bills", "a*b", "c?[d]"):
        assert given.may("publish", queue), queue
    for queue in ("shop", "xshop.a", "bills2", "Bills", "axb", "cxd", ""):
        assert not given.may("publish", queue), queue
    assert not given.may("read", "bills")
    assert given.patterns == {"publish": ["a*b", "bills", "c?[d]", "shop.*"]}


def test_each_scope_has_queues_of_its_own() -> None:
    """INTERFACES 1, tokens: publishing in some, reading in others; who may create tokens has admin everywhere."""
    given = token({"publish": ["shop.*"], "read": ["*"], "admin": ["a"]})
    assert (given.may("publish", "a"), given.may("read", "a"), given.may("admin", "a")) == (False, True, True)
    assert not given.is_operator
    assert token({"admin": ["a", "*"]}).is_operator
    assert given.reach("read") is None
    reach = given.reach("publish", "admin")
    assert reach is not None
    assert [reach.match(one) for one in ("a", "shop.x", "b")] == [True, True, False]
    assert given.reach("admin", "read") is None
    assert parse_scopes(given.patterns) == (given.scopes, given.narrowed)


@pytest.mark.parametrize(
    ("scopes", "queues"),
    [
        ([], None), ({}, None), ("publish", None), (["publish", "all"], None), ([1], None), (None, None),
        (["publish"], []), (["publish"], "a"), (["publish"], [""]), (["publish"], ["x" * 130]), (["publish"], [1]),
        ({"publish": []}, None), ({"publish": None}, None), ({"publish": ["a"]}, ["b"]), (["read"], ["a"] * 65),
    ],
)  # fmt: skip
def test_what_is_no_scope_is_refused(scopes: Any, queues: Any) -> None:
    """INTERFACES 1, tokens: a mistake must not make a token that may more than was meant."""
    with pytest.raises(BadSetting):
        parse_scopes(scopes, queues)


def test_the_hash_of_nothing_is_refused_and_no_digest_is_repeated() -> None:
    """INTERFACES 1, tokens: nor is what may be the token itself."""
    for nothing in (b"", b"\n", b"\r\n"):
        with pytest.raises(BadSetting, match="of nothing"):
            parse_digest(sha256(nothing).hexdigest().upper())
    with pytest.raises(BadSetting) as wrong:
        parse_digest("verysecret")
    assert "verysecret" not in wrong.value.detail
    assert parse_digest(DIGEST.upper()) == DIGEST


@pytest.mark.parametrize("name", ["", "a/b", ".a", "a b", "x" * 129, "é", "a\n", 1, None])
def test_a_name_can_stand_in_a_path(name: Any) -> None:
    """INTERFACES 3: DELETE /v1/tokens/{name}."""
    with pytest.raises(BadName):
        parse_token_name(name)
    assert parse_token_name("shop-1.a_B") == "shop-1.a_B"
