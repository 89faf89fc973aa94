"""Signals: the first asks for a clean stop, the second for a quick one."""

import asyncio
import signal


class Stopping:
    """Whether this process was asked to stop, and how urgently."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.urgent = asyncio.Event()

    def listen(self) -> None:
        """Take over SIGINT and SIGTERM for the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.ask)

    def ask(self) -> None:
        if self.asked.is_set():
            self.urgent.set()
        self.asked.set()
