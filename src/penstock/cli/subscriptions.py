"""`penstock subscriptions`: job events, delivered to webhooks and SNS topics of one's own."""

import os
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.exit_codes import REFUSED
from penstock.cli.format import first_items, instant, page_size
from penstock.cli.subscription_format import (
    print_deliveries,
    print_secret,
    print_subscription,
    print_subscriptions,
    replayed,
    sentence,
    tested,
)
from penstock.client.subscription_calls import SubscriptionChanges
from penstock.model.lifecycle import State
from penstock.model.subscriptions import MOST_BATCHED, MOST_IN_FLIGHT, EventContent
from penstock.model.wire.subscriptions import SubscriptionList

subscriptions = CommandGroup(
    name="subscriptions",
    help="Have job events delivered to webhooks or SNS topics of your own.",
    examples=(
        "penstock subscriptions create orders https://shop.example/hook --type report --state failed",
        "penstock subscriptions show orders",
        "penstock subscriptions replay orders --dead",
    ),
    lazy={
        "create": ("penstock.cli.subscriptions:create", "Create a subscription and print its secret, this once."),
        "list": ("penstock.cli.subscriptions:list_subscriptions", "List subscriptions, without their secrets."),
        "show": ("penstock.cli.subscriptions:show", "Show subscriptions and how their deliveries stand."),
        "update": ("penstock.cli.subscriptions:update", "Change a subscription's sink, filter or limits."),
        "pause": ("penstock.cli.subscriptions:pause", "Deliver nothing until a subscription is resumed."),
        "resume": ("penstock.cli.subscriptions:resume", "Deliver again, from where a subscription stopped."),
        "test": ("penstock.cli.subscriptions:test", "Send one test event and say what came of it."),
        "rotate": ("penstock.cli.subscriptions:rotate", "Replace the secret, and print the new one, this once."),
        "deliveries": ("penstock.cli.subscriptions:deliveries", "List what was delivered and what failed."),
        "replay": ("penstock.cli.subscriptions:replay", "Deliver events again: one, a span of time, or the dead."),
        "delete": ("penstock.cli.subscriptions:delete", "Delete subscriptions and their delivery logs."),
    },
    default="list",
)

R = TypeVar("R")

ALL = "all"

name_argument = click.argument("name", metavar="NAME")
names_argument = click.argument("names", metavar="NAME...", nargs=-1, required=True)
secret_option = click.option(
    "--secret-env",
    "secret",
    callback=lambda _context, _option, name: None if name is None else read_secret(name),
    metavar="VARIABLE",
    help="Variable that holds a secret of your own, whsec_…  [default: a new one is made]",
)


def read_secret(variable: str) -> str:
    """The secret in an environment variable: there it stays out of the shell's history."""
    if variable not in os.environ:
        raise click.BadParameter(f"there is no variable {variable}")
    return os.environ[variable]


def terms_options(function: Callable[..., R]) -> Callable[..., R]:
    """The options that say which events, and how they are delivered."""
    options = (
        click.option("--type", "types", multiple=True, metavar="TYPE", help="Job type; may be repeated."),
        click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="Queue; may be repeated."),
        click.option(
            "--state",
            "states",
            multiple=True,
            metavar="STATE",
            help=f"State that a job came to: {', '.join(State)}; may be repeated.",
        ),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag, of which a job needs one; repeatable."),
        click.option(
            "--include",
            type=click.Choice([one.value for one in EventContent]),
            help="The job with each event, or facts only.  [default: item]",
        ),
        click.option("--batch", type=click.IntRange(1, MOST_BATCHED), metavar="N", help="Events in one request."),
        click.option(
            "--in-flight", type=click.IntRange(1, MOST_IN_FLIGHT), metavar="N", help="Requests at a time.  [default: 8]"
        ),
        click.option("--per-second", type=float, metavar="N", help="Requests in a second.  [default: no limit]"),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command(
    "create",
    "penstock subscriptions create orders https://shop.example/hook",
    "penstock subscriptions create alerts https://shop.example/hook --state failed --tag nightly",
    "penstock subscriptions create orders https://shop.example/hook --batch 100 > orders.secret",
    "penstock subscriptions create orders arn:aws:sns:us-east-1:123456789012:orders",
)
@name_argument
@click.argument("sink", metavar="SINK")
@terms_options
@secret_option
@remote
def create(*, name: str, sink: str, secret: str | None, server: RemoteServer, **terms: Any) -> None:
    """Create a subscription and print its secret, alone on stdout. It is shown this once.

    Events of all jobs are delivered to SINK from now on, or those that fit every kind of option that is given. SINK is
    the URL of a webhook, or the ARN of an SNS topic, which has no secret.
    """
    made = server.ask(lambda client: client.subscriptions.create(name, sink, secret=secret, **_said(terms)))
    server.show(made, lambda: print_secret(made))


@command("list", "penstock subscriptions list --json")
@remote
def list_subscriptions(*, server: RemoteServer) -> None:
    """List subscriptions: where each delivers to, which events, and its state."""
    found = server.ask(lambda client: client.subscriptions.list())
    empty = "no subscriptions; make one with: penstock subscriptions create NAME SINK"
    server.show_list(SubscriptionList(found), found, print_subscriptions, empty)


@command("show", "penstock subscriptions show orders")
@names_argument
@remote
def show(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Show subscriptions: what was delivered from each shard, what failed, and how far behind it is."""
    server.show_each(
        names, lambda client, name: client.subscriptions.get(name), lambda _, found: print_subscription(found)
    )


@command(
    "update",
    "penstock subscriptions update orders --to https://shop.example/new",
    "penstock subscriptions update orders --state failed --type all",
)
@name_argument
@click.option("--to", "sink", metavar="SINK", help="Where to deliver to: a URL, or the ARN of an SNS topic.")
@terms_options
@remote
def update(*, name: str, sink: str | None, server: RemoteServer, **terms: Any) -> None:
    """Change what is named and leave the rest. The word `all` for a type, queue, state or tag lifts that limit."""
    changes: SubscriptionChanges = _said(terms)  # type: ignore[assignment]
    if sink is not None:
        changes["url"] = sink
    if not changes:
        raise click.UsageError("nothing to change: name a sink (--to), a filter or a limit")
    item = server.ask(lambda client: client.subscriptions.update(name, **changes))
    server.say(item, sentence(item))


@command("pause", "penstock subscriptions pause orders")
@names_argument
@remote
def pause(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Deliver nothing until subscriptions are resumed. Their events wait, as long as the journal keeps them."""
    server.for_each(
        names,
        lambda client, name: client.subscriptions.pause(name),
        lambda item: f"{item.name} is paused; go on with: penstock subscriptions resume {item.name}",
    )


@command("resume", "penstock subscriptions resume orders")
@names_argument
@remote
def resume(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Deliver again, from where subscriptions stopped, also after Penstock has disabled them."""
    server.for_each(names, lambda client, name: client.subscriptions.resume(name), lambda item: f"{item.name} delivers")


@command("test", "penstock subscriptions test orders")
@name_argument
@remote
def test(*, name: str, server: RemoteServer) -> int:
    """Send one test event now and say what came of it. The exit status is 1 if it was not delivered."""
    outcome = server.ask(lambda client: client.subscriptions.test(name))
    server.say(outcome, tested(name, outcome))
    return 0 if outcome.delivered else REFUSED


@command(
    "rotate",
    "penstock subscriptions rotate orders > orders.secret",
    "penstock subscriptions rotate orders --secret-env NEW_SECRET",
)
@name_argument
@secret_option
@remote
def rotate(*, name: str, secret: str | None, server: RemoteServer) -> None:
    """Replace the secret of a subscription, and print the new one, alone on stdout. It is shown this once.

    The old one signs too for a day, so that receivers can take over the new one meanwhile.
    """
    made = server.ask(lambda client: client.subscriptions.rotate(name, secret=secret))
    server.show(made, lambda: print_secret(made))


@command("deliveries", "penstock subscriptions deliveries orders --limit 100")
@name_argument
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most lines to show.")
@remote
def deliveries(*, name: str, limit: int, server: RemoteServer) -> None:
    """List what was delivered and what failed, newest first: failures one by one, successes in a row as one line."""
    with server.connect() as client:
        found = first_items(client.subscriptions.deliveries(name, page_size=page_size(limit)), limit)
    server.show_listing("deliveries", found, print_deliveries, f"nothing was delivered for {name} yet")


@command(
    "replay",
    "penstock subscriptions replay orders --dead",
    "penstock subscriptions replay orders --event evt_0190a6e27d3c7000800000000000002a_3",
    "penstock subscriptions replay orders --from 2026-11-15T18:00 --to 2026-11-15T19:00",
)
@name_argument
@click.option("--event", metavar="ID", help="One event, by its id.")
@click.option("--from", "since", type=instant, metavar="TIME", help="Events since then that fit the filter.")
@click.option("--to", "until", type=instant, metavar="TIME", help="Until when, with --from.  [default: now]")
@click.option("--dead", is_flag=True, help="All that were given up.")
@remote
def replay(
    *, name: str, event: str | None, since: datetime | None, until: datetime | None, dead: bool, server: RemoteServer
) -> None:
    """Deliver events again, under the same ids: one, those of a span of time, or all that were given up."""
    if (event is not None) + (since is not None) + dead != 1 or (until is not None and since is None):
        raise click.UsageError("say what to deliver again: --event, --from (with --to), or --dead")
    answer = server.ask(
        lambda client: client.subscriptions.replay(name, event=event, since=since, until=until, dead=dead)
    )
    server.say(answer, replayed(name, answer))


@command("delete", "penstock subscriptions delete orders")
@names_argument
@remote
def delete(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Delete subscriptions and their delivery logs. What they had not delivered is not delivered any more."""
    with server.connect() as client:
        for name in names:
            client.subscriptions.delete(name)
            server.say({"deleted": name}, f"{name} is deleted")


def _said(terms: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; a list with the word `all` is none."""
    given = {name: value for name, value in terms.items() if value is not None and value != ()}
    return {name: None if isinstance(value, tuple) and ALL in value else value for name, value in given.items()}
