"""Query parameters and headers: what the description says of one is what its parser does."""

from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from syncbrok.frontends.over_http import app
from syncbrok.frontends.over_http.consuming import streams
from syncbrok.frontends.over_http.publishing.headers import FORWARD, HEADERS, parse_publish
from syncbrok.frontends.over_http.requests import parameters
from syncbrok.frontends.over_http.requests.parameters import Parameter
from syncbrok.frontends.over_http.requests.routes import Route
from syncbrok.frontends.over_http.resources import events, page
from syncbrok.model.errors import BadSetting, ClientFault, Malformed


def every_route() -> list[Route]:
    nobody: Any = None
    return [*app._ROUTES, *events.ROUTES, *page.routes(), *streams.routes(nobody)]


PARAMETERS = {f"{one.method} {one.path} {its.name}": its for one in every_route() for its in (*one.query, *one.headers)}


@pytest.mark.parametrize("named", PARAMETERS)
def test_a_parameter_takes_what_its_schema_says_and_no_more(named: str) -> None:
    """INTERFACES 3, OpenAPI: bounds, choices and defaults of the description are those of the parser."""
    one = PARAMETERS[named]
    schema = one.schema
    if "default" in schema:
        assert one.default == schema["default"]
        assert one.read(str(schema["default"]).lower()) == schema["default"]
    for choice in schema.get("enum", ()):
        assert one.read(choice) is not None
    for bound, beyond in (("minimum", -1), ("maximum", 1)):
        if bound in schema:
            one.read(str(schema[bound]))
            _refuses(one, str(schema[bound] + beyond))
    if "maxLength" in schema:
        assert one.read("k" * schema["maxLength"])
        _refuses(one, "k" * (schema["maxLength"] + 1))
    if schema["type"] in ("integer", "boolean") or ("enum" in schema and not named.endswith("ce-specversion")):
        _refuses(one, "wrong")


def _refuses(one: Parameter[Any], text: str) -> None:
    with pytest.raises(ClientFault) as caught:
        one.read(text)
    assert isinstance(caught.value, Malformed | BadSetting)


@pytest.mark.parametrize("name", [one.name for one in HEADERS if one.name.startswith("Syncbrok-") and one != FORWARD])
def test_a_header_of_ours_is_read_where_it_is_described_and_else_refused(name: str) -> None:
    """INTERFACES 3: what is described is looked at; what is not described is refused, not passed over."""
    with pytest.raises(ClientFault):
        parse_publish([(name, "\x7f")], b"", 64, 0)
    with pytest.raises(Malformed, match="there is no header"):
        parse_publish([(f"{name}-x", "1")], b"", 64, 0)


def test_an_absent_parameter_has_its_default() -> None:
    """INTERFACES 3: what is left out is as the description says."""
    request = make_mocked_request("GET", "/v1/queues?after=12&dry_run")
    assert parameters.LIMIT.in_query(request) == parameters.LIMIT.schema["default"]
    assert parameters.AFTER_SEQUENCE.in_query(request) == 12
    assert parameters.DRY_RUN.in_query(request) is True
