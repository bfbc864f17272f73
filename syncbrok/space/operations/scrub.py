"""Reads again what has been written once: sealed segments against their seals, for as long as the broker runs.

Start-up trusts a sealed segment by its footer, so that a large log opens fast; what a disk loses later is found here,
while there is still a backup to mend it from, and not by the replay that needs it in a year.
"""

import asyncio
from typing import Final

from syncbrok.model.journal import Sections
from syncbrok.space.reader_threads import RunBlocking

ROUND_EVERY_S: Final = 86_400.0
PAUSE_S: Final = 1.0
"""between two segments: 64 MiB a second is nothing to a disk"""


async def scrub(journal: Sections, run_blocking: RunBlocking) -> None:
    """For ever: every sealed segment once a day, oldest first. What is found is logged and stands in ``damaged``."""
    while True:
        for section in journal.sections():
            if section.sealed:
                await run_blocking(journal.check, section)
                await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(ROUND_EVERY_S)
