"""`penstock worker`, in a file of its own so that a worker loads little else."""

import click

from penstock.cli import options, style
from penstock.cli.commands import command
from penstock.cli.exit_codes import USAGE
from penstock.cli.process import Configure, role, run_for_long
from penstock.model.errors import InvalidSetting


@command(
    "worker",
    "penstock worker shop.jobs:app --url http://127.0.0.1:7373 --queue mail --capacity 64",
    "penstock worker shop.jobs:app --direct --config /etc/penstock/penstock.toml",
)
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--queue", "queues", multiple=True, metavar="QUEUE", help="Take jobs of this queue only; may be repeated."
)
@click.option("--direct", is_flag=True, default=None, help="Reach store, broker and objects without a server.")
@options.capacity
@options.executors
@options.url
@options.config
@options.metrics_port
@role
def worker(
    *,
    app: str,
    queues: tuple[str, ...],
    direct: bool | None,
    capacity: int | None,
    executors: int | None,
    url: str | None,
    metrics_port: int | None,
    configure: Configure,
) -> int:
    """Run a worker for the job types of MODULE:APP, against a server that is up elsewhere.

    With --direct it needs no server: it reaches the store, the broker and the objects of the settings itself.
    Ctrl-C or SIGTERM drains it: it takes no more jobs, finishes those it has, and gives back the rest.
    Exits 2 if its app or settings cannot be used, so that whoever supervises it need not start it again.
    """
    flags = {
        "worker.queues": queues or None,
        "worker.direct": direct,
        "worker.capacity": capacity,
        "worker.executors": executors,
        "worker.url": url,
        "metrics.address": options.metrics_address(metrics_port),
    }
    try:
        settings = configure(flags)
        from penstock import runtime

        run_for_long(runtime.work(settings, app))
    except InvalidSetting as error:
        style.say(f"penstock: {error.message}", err=True)
        return USAGE
    return 0
