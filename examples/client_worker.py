#!/usr/bin/env python3
"""Publish jobs and work them off with the Python client, without asyncio. Needs the README's ``.venv``.

syncbrok serve &                                        a broker
python3 examples/client_worker.py                       100 jobs through the queue "jobs", each tried until it works
python3 examples/client_worker.py --url http://... --jobs 1000
"""

import argparse
import threading

from syncbrok.client import Received, Refuse, SyncClient

QUEUE = "jobs"
GROUP = "workers"


def main(url: str, jobs: int) -> None:
    done: set[str] = set()
    lock = threading.Lock()  # each message is handled in a thread of its own

    with SyncClient(url) as broker:
        broker.declare(QUEUE, retry=["0s", "1s", "1m"])

        @broker.consumer(QUEUE, GROUP, concurrency=8)
        def work(message: Received) -> None:
            if message.json()["job"] % 10 == 0 and message.attempt == 1:
                raise Refuse("not at the first try")
            with lock:
                done.add(message.id)
                if len(done) == jobs:
                    broker.stop()

        published = broker.publish_many(QUEUE, [{"job": number} for number in range(jobs)])
        broker.run()
        print(f"{len(done)} of {jobs} jobs done; the last one is {broker.wait(published[-1])}")


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--url", default="http://127.0.0.1:10000")
    flags.add_argument("--jobs", type=int, default=100)
    given = flags.parse_args()
    main(given.url, given.jobs)
