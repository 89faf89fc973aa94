"""A worker in the foreground: until it is told to stop."""

import asyncio
import signal

from penstock.worker.agent.agent import Agent

SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def run(agent: Agent) -> None:
    """Start the agent and work until a signal drains it; a second one makes it hurry. InvalidSetting from its start."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, agent.drain)
    try:
        await agent.start()
        await agent.run()
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
