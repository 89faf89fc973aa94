"""`penstock events`: what changed the states of jobs, so far and as it happens."""

from datetime import timedelta

import click

from penstock.cli import style
from penstock.cli.commands import command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.format import print_json, span
from penstock.model.clock import SystemClock
from penstock.model.lifecycle import State
from penstock.model.wire.events import EventItem

RECENT_SECONDS = 3600.0


@command(
    "events",
    "penstock events --follow --type report",
    "penstock events --since 1d --state failed --json",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only jobs of this type; may be repeated.")
@click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="Only jobs in this queue; may be repeated.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in State]),
    help="Only changes into this state; may be repeated.",
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only jobs with this tag; may be repeated.")
@click.option("--since", type=span, metavar="SPAN", help="Begin so long ago.  [default: 1 hour; with --follow now]")
@click.option("--items", is_flag=True, help="With --json: each event with its job.")
@remote
def events(
    *,
    follow: bool,
    types: tuple[str, ...],
    queues: tuple[str, ...],
    states: tuple[str, ...],
    tags: tuple[str, ...],
    since: float | None,
    items: bool,
    server: RemoteServer,
) -> None:
    """Print what changed the states of jobs, oldest first: a line for each change, or with --json an object.

    With --follow it goes on, and connects again by itself if the connection is lost.
    """
    span = since if since is not None or follow else RECENT_SECONDS
    begin = None if span is None else SystemClock().now() - timedelta(seconds=span)
    show = print_json if server.as_json else print_event
    with server.connect() as client:
        for event in client.events(
            follow=follow,
            types=types or None,
            queues=queues or None,
            states=states or None,
            tags=tags or None,
            items=items and server.as_json,
            since=begin,
        ):
            show(event)


def print_event(event: EventItem) -> None:
    """One line."""
    before = "" if event.before is None else f"{style.state(event.before)} → "
    attempt = f" (attempt {event.attempt})" if event.attempt > 1 else ""
    reason = f"  {event.reason}" if event.reason else ""
    at = style.dim(f"{event.at.astimezone():%H:%M:%S}")
    style.say(f"{at} {event.job}  {event.type}  {before}{_after(event)}{attempt}{reason}")


def _after(event: EventItem) -> str:
    """A job that was only asked to stop has not changed its state."""
    asked = " (asked to cancel)" if event.before is event.after else ""
    return style.state(event.after) + asked
