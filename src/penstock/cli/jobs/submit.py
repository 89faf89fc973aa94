"""`penstock jobs submit`"""

from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.jobs.ended import print_ended
from penstock.cli.jobs.params import params_schema, read_params, split_pair
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.cli.spans import instant, span
from penstock.model.retry import RetryKind
from penstock.model.timing import SystemClock


@command(
    "submit",
    "penstock jobs submit thumbnail url=cat.png width=64 --wait",
    """penstock jobs submit report '{"month": "2026-11"}' --delay 1h --tag monthly --key report-2026-11""",
    "penstock jobs submit convert --input photo=cat.png",
)
@click.argument("type_name", metavar="TYPE")
@click.argument("words", metavar="[PARAMS]...", nargs=-1)
@click.option("-p", "pairs", multiple=True, metavar="KEY=VALUE", help="One of the params; the same as KEY=VALUE alone.")
@click.option("--queue", help="Queue to put it in.  [default: the type's own]")
@click.option("--priority", type=click.IntRange(0, 9), help="9 goes first.  [default: the type's own]")
@click.option("--delay", type=span, metavar="SPAN", help="Run it after this long, such as 90s or 1h30m.")
@click.option("--at", "scheduled_at", type=instant, metavar="TIME", help="Run it at this time (ISO 8601).")
@click.option("--interval", type=span, metavar="SPAN", help="Run it again and again, this often: makes a schedule.")
@click.option("--timeout", type=span, metavar="SPAN", help="Stop an attempt after this long.")
@click.option(
    "--retry", type=click.Choice([kind.value for kind in RetryKind]), help="How attempts that error are tried again."
)
@click.option("--expires", type=span, metavar="SPAN", help="Give up if it has not started after this long.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Mark it, to find it again; may be repeated.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=PATH", help="File it reads; may be repeated.")
@click.option("--key", help="Idempotency key: the same key gives the same job back.")
@click.option("--wait", is_flag=True, help="Wait until it ends and print its result; exit 1 if it does not succeed.")
@click.option("--wait-for", type=span, metavar="SPAN", help="Wait no longer than this.  [default: for ever]")
@options.remote
def submit(
    *,
    type_name: str,
    words: tuple[str, ...],
    pairs: tuple[str, ...],
    inputs: tuple[str, ...],
    expires: float | None,
    wait: bool,
    wait_for: float | None,
    url: str | None,
    config: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Submit a job of TYPE. Prints the job's id; with --wait its result.

    PARAMS are written as key=value, where a value that is JSON is taken as such, unless the type wants text there, and
    any other as text; or as a JSON object, as @file with one, or as - for stdin.
    """
    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    if "delay" in chosen and "scheduled_at" in chosen:
        raise click.UsageError("--delay and --at exclude each other: give one of them")
    with connected(url, config) as client:
        params = read_params([*words, *pairs], partial(params_schema, client, type_name))
        job = client.submit(type_name, params, **chosen, inputs=_inputs(inputs), expires_at=_expiry(expires))
        if wait or wait_for is not None:
            ended = client.wait(job.id, timeout=wait_for)
            return print_ended(ended, as_json=as_json)
    if as_json:
        print_json(job)
    else:
        click.echo(job.id)
        ink.hint(f"{job.state}; follow it with: penstock jobs watch {job.id}")
    return 0


def _inputs(texts: tuple[str, ...]) -> dict[str, Path]:
    pairs = (split_pair(text, "--input name=path") for text in texts)
    return {name: Path(path) for name, path in pairs}


def _expiry(span: float | None) -> datetime | None:
    return SystemClock().now() + timedelta(seconds=span) if span is not None else None
