"""A server of the tests leaves nothing behind: what is collected later fails another test, that is none of its."""

import asyncio
import gc
import socket
import warnings

import pytest

from tests.support.delivery.endpoint import Endpoint


@pytest.mark.parametrize("turns", range(8))
async def test_an_endpoint_that_ends_as_it_accepts_leaves_no_socket(turns: int) -> None:
    """In whichever turn of the loop it is closed. (``Server.close`` leaves those accepted in the turn before.)"""
    async with Endpoint() as endpoint:
        clients = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
    for client in clients:
        client.close()
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    assert [str(one.message) for one in left if issubclass(one.category, ResourceWarning)] == []
