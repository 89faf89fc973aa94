"""`penstock fleets list`"""

from pathlib import Path

from penstock.cli import options
from penstock.cli.commands import command
from penstock.cli.fleets.face import print_fleets
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.model.fleet_wire import FleetList


@command("list", "penstock fleets list")
@options.remote
def standing(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """List fleets: which queues each serves, its workers and bounds, and why it has as many as it has."""
    with connected(url, config) as client:
        items = client.fleets()
    if as_json:
        print_json(FleetList(items))
    else:
        print_fleets(items)
