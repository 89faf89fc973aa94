"""A process that owns a fleet of one worker, for tests that kill it. Arguments: URL, folder, fleet."""

import asyncio
import json
import random
import sys
import threading
from pathlib import Path

from penstock.autoscaler.backends.processes import ProcessFleets
from penstock.client import AsyncClient
from penstock.model.clock import SystemClock, seconds
from penstock.worker.prefork.launcher import Launcher
from tests.contracts.fleet_folder import Folder

THREADS = 8
"""The kernel tells a worker of its owner's end once for each thread that the owner had: it must not matter."""


async def main(url: str, folder: str, fleet: str) -> None:
    for _ in range(THREADS):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    fleets = ProcessFleets(Launcher().launch, SystemClock(), random.Random(), patience=seconds(60))
    async with AsyncClient(url) as client:
        yard = Folder(client, url, Path(folder))
        names = await fleets.start(yard.order(fleet), 1)
        await yard.wait_for_joined(names)
    sys.stdout.write(json.dumps(names) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
