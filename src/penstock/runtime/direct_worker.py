"""A worker that reaches store, broker and objects itself, without a server. An HTTP worker never imports this."""

import os

from penstock.config import Settings
from penstock.engine import Engine
from penstock.model.names import MEMBER
from penstock.runtime.backends import check_shared, open_engine
from penstock.runtime.metrics_server import telling_metrics, with_metrics_address
from penstock.runtime.services import run_loops, signal_loops
from penstock.runtime.tallies import contributing
from penstock.worker.agent.agent import Agent, run


async def work_directly(settings: Settings, app: str) -> None:
    """Run one worker until a signal; it drains first. InvalidSetting unless store and broker are shared ones."""
    check_shared(settings, "worker --direct")
    async with open_engine(with_metrics_address(settings)) as engine, telling_metrics(engine):
        agent = Agent(app, engine.worker_api, settings, engine.clock, worker=os.environ.get(MEMBER))
        async with contributing(engine), run_loops([*signal_loops(engine), _beat_on_cancel(engine, agent)]):
            await run(agent)


async def _beat_on_cancel(engine: Engine, agent: Agent) -> None:
    """Send a heartbeat at once whenever a running job was asked to stop: its answer names the jobs."""
    while True:
        await engine.signals.cancels.wait()
        engine.signals.cancels.clear()
        agent.beat()
