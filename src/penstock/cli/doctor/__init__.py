"""`penstock doctor`: examines all that can keep Penstock from working, and says what to do about each fault."""

import asyncio
from pathlib import Path

import click

from penstock.cli import options
from penstock.cli.commands import command
from penstock.cli.doctor.backends import examine_backends, examine_fleets
from penstock.cli.doctor.findings import Finding, all_well, print_findings
from penstock.cli.doctor.machine import examine_folder, examine_machine
from penstock.cli.doctor.server import examine_server
from penstock.cli.exit_codes import REFUSED
from penstock.cli.format import Printer
from penstock.config import Settings


@command("doctor", "penstock doctor", "penstock doctor --url http://127.0.0.1:8000 --data /var/lib/penstock --json")
@click.option("--data", metavar="DIR", help="Data folder to look at.  [default: .penstock]")
@options.remote
def doctor(*, data: str | None, url: str | None, config: Path | None, as_json: bool) -> int:
    """Check this machine, its settings, every part they name, and the server.

    Only looks: no table is made or changed. How the disk and the object store take writes is tried with a file that is
    removed again. Exits 1 if anything fails.
    """
    findings = examine(options.settings(config, {"server.data": data, "worker.url": url}))
    well = all_well(findings)
    Printer(as_json=as_json).show({"ok": well, "findings": findings}, lambda: print_findings(findings))
    return 0 if well else REFUSED


def examine(settings: Settings) -> list[Finding]:
    """All findings, the machine's first."""
    return [*examine_machine(), *_examine_data(settings), *asyncio.run(_examine_services(settings))]


def _examine_data(settings: Settings) -> list[Finding]:
    """The data folder, unless database and files are both elsewhere."""
    elsewhere = settings.objects.url and (settings.store.url or settings.store.shards)
    return [] if elsewhere else list(examine_folder(Path(settings.server.data).expanduser().absolute()))


async def _examine_services(settings: Settings) -> list[Finding]:
    return [
        *await examine_backends(settings),
        *await examine_fleets(settings),
        *await examine_server(settings),
    ]
