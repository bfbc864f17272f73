#!/usr/bin/env python3
"""Publish families and consume them, parents first, with the Python client. Needs the README's ``.venv``.

syncbrok serve &                                        a broker
python3 examples/client_family.py                       100 families through the queue "families"
python3 examples/client_family.py --url http://... --families 1000
"""

import argparse
import asyncio

from syncbrok.client import Client, Draft, Received

QUEUE = "families"
GROUP = "readers"


async def main(url: str, families: int) -> None:
    seen: set[str] = set()
    done = asyncio.Event()

    async with Client(url) as broker:
        await broker.declare(QUEUE)

        @broker.consumer(QUEUE, GROUP, concurrency=32)
        async def handle(message: Received) -> None:
            assert all(parent in seen for parent in message.parents), "a child before its parent"
            seen.add(message.id)
            if len(seen) == 3 * families:
                done.set()

        consuming = asyncio.create_task(broker.run())
        for number in range(families):
            # Nothing is awaited between them: the three go into one batch, and the child names its parents in it.
            mother = await broker.post(QUEUE, f"mother {number}")
            father = await broker.post(QUEUE, f"father {number}")
            await broker.post(QUEUE, Draft(f"child {number}", parents=(mother, father)))
        print(f"published; the last mother is {(await mother).id}")
        await done.wait()
        print(f"{len(seen)} messages, every child after its parents")
        broker.stop()
        await consuming


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--url", default="http://127.0.0.1:10000")
    flags.add_argument("--families", type=int, default=100)
    given = flags.parse_args()
    asyncio.run(main(given.url, given.families))
