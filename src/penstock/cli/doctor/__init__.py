"""`penstock doctor`: everything that can stand in the way, looked at once, each finding with what to do about it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli import options, style
from penstock.cli.commands import command
from penstock.cli.doctor import backends, fleets, folder, machine, server
from penstock.cli.doctor.finding import Finding, FindingStatus
from penstock.cli.exit_codes import REFUSED
from penstock.cli.format import print_json
from penstock.config import Settings

MARKS = {
    FindingStatus.OK: style.good("ok  "),
    FindingStatus.WARN: style.warned("warn"),
    FindingStatus.FAIL: style.bad("FAIL"),
}


@command("doctor", "penstock doctor", "penstock doctor --url http://127.0.0.1:8000 --data /var/lib/penstock --json")
@click.option("--data", metavar="DIR", help="Data folder to look at.  [default: .penstock]")
@options.remote
def doctor(*, data: str | None, url: str | None, config: Path | None, as_json: bool) -> int:
    """Check this machine, its settings, every part they name, and the server.

    Only looks: no table is made or changed. How the disk and the object store take writes is tried with a file that is
    removed again. Exits 1 if anything fails.
    """
    findings = examine(options.settings(config, {"server.data": data, "worker.url": url}))
    if as_json:
        print_json({"ok": _well(findings), "findings": findings})
    else:
        _print(findings)
    return 0 if _well(findings) else REFUSED


def examine(settings: Settings) -> list[Finding]:
    """All findings, the machine's first."""
    return [*machine.examine(), *_data(settings), *asyncio.run(_engines(settings))]


def _data(settings: Settings) -> list[Finding]:
    """The data folder, unless nothing lies there."""
    elsewhere = settings.objects.url and (settings.store.url or settings.store.shards)
    return [] if elsewhere else list(folder.examine(Path(settings.server.data).expanduser().absolute()))


async def _engines(settings: Settings) -> list[Finding]:
    return [*await backends.examine(settings), *await fleets.examine(settings), *await server.examine(settings)]


def _well(findings: Sequence[Finding]) -> bool:
    return all(finding.status is not FindingStatus.FAIL for finding in findings)


def _print(findings: Sequence[Finding]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        style.say(f"{MARKS[finding.status]}  {finding.name:<{width}}  {finding.found}")
        if finding.remedy:
            style.say(f"{'':{width + 8}}{style.dim('→ ' + finding.remedy)}")
