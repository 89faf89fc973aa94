"""A worker in the foreground: until it is told to stop."""

import asyncio
import signal
from functools import partial

from penstock.worker.agent.agent import Agent
from penstock.worker.mortality import ORPHANED

SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def run(agent: Agent) -> None:
    """Start the agent and work until a signal or its parent's end drains it. InvalidSetting from its start.

    A second signal makes it hurry. Afterwards the process can only end: one more signal must not make an orderly end
    look like a death.
    """
    starting = asyncio.ensure_future(agent.start())
    asked = False

    def stop(*, hurry: bool) -> None:
        nonlocal asked
        if hurry or not asked:
            agent.drain()
        asked = True
        starting.cancel()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, partial(stop, hurry=True))
    loop.add_signal_handler(ORPHANED, partial(stop, hurry=False))
    try:
        await asyncio.wait({starting})
        if not starting.cancelled():
            starting.result()
            await agent.run()
    finally:
        starting.cancel()
        signal.pthread_sigmask(signal.SIG_BLOCK, (*SIGNALS, ORPHANED))
        for number in (*SIGNALS, ORPHANED):
            loop.remove_signal_handler(number)
