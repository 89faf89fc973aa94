"""A bell that wakes everyone who waits for it."""

import asyncio


class Wakeup:
    """Unlike an Event it does not stay set: who was not waiting has missed it, and looks before waiting."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def wait(self) -> None:
        heard = asyncio.get_running_loop().create_future()
        self._waiting.append(heard)
        await heard
