"""A worker that reaches store, broker and objects itself, without a server. An HTTP worker never imports this."""

from penstock.backends import check_shared, open_engine
from penstock.config import Settings
from penstock.runtime.metrics_server import serve_metrics, with_metrics_address
from penstock.runtime.services import run_loops, signal_loops
from penstock.runtime.tallies import contribute_tallies
from penstock.worker.agent.agent import Agent, run


async def work_directly(settings: Settings, app: str, name: str | None) -> None:
    """Run a worker of this name, or any, until a signal; it drains first.

    InvalidSetting unless store and broker are shared ones.
    """
    check_shared(settings, "worker --direct")
    async with open_engine(with_metrics_address(settings)) as engine, serve_metrics(engine):
        agent = Agent(app, engine.worker_api, settings, engine.clock, worker=name)
        # A heartbeat at once whenever a running job is asked to stop: its answer names the jobs.
        engine.signals.cancels.subscribe(lambda _: agent.beat())
        async with contribute_tallies(engine), run_loops(signal_loops(engine)):
            await run(agent)
