"""How a test ends a server of asyncio's."""

import asyncio

_TURNS = 16
"""of the loop; asyncio needs five from the accepted socket to the call of who serves it"""


async def close_server(server: asyncio.Server) -> None:
    """Accept no more; who was accepted before is being served on return. ``Server.close`` alone leaves a socket open
    until it is collected, which some later test then fails of, where its connection was accepted in that turn of the
    loop (CPython 3.11: the transport is made after it and finds no server)."""
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    server.close()
