"""`penstock jobs output`"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.jobs.face import size
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.model.errors import NotFound
from penstock.model.wire import FileItem, JobItem

if TYPE_CHECKING:
    from penstock.client import Client


@command("output", "penstock jobs output 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55 thumbnail.png -o cat-small.png")
@click.argument("id", metavar="ID")
@click.argument("name", required=False)
@click.option(
    "-o", "--to", type=click.Path(path_type=Path), help="File or folder to write; - for stdout.  [default: .]"
)
@options.remote
def output(*, id: str, name: str | None, to: Path | None, url: str | None, config: Path | None, as_json: bool) -> None:
    """Download the output NAME of a job; without NAME, its only one."""
    with connected(url, config) as client:
        file = _chosen(client.get(id), name)
        if to == Path("-"):
            click.echo(client.output(id, file.name), nl=False)
            return
        _download(client, id, file, to or Path(), as_json=as_json)


def _download(client: "Client", job: str, file: FileItem, to: Path, *, as_json: bool) -> None:
    path = client.download(job, file.name, to)
    if as_json:
        print_json({"name": file.name, "path": str(path), "size": file.size, "digest": file.digest})
    else:
        ink.say(f"{path} ({size(file.size)})")


def _chosen(item: JobItem, name: str | None) -> FileItem:
    known = ", ".join(file.name for file in item.outputs) or f"none: it is {item.state}"
    wanted = [file for file in item.outputs if name in (None, file.name)]
    if len(wanted) == 1:
        return wanted[0]
    if name is None and wanted:
        raise click.UsageError(f"job {item.id} has several outputs; name one of: {known}")
    raise NotFound(f"job {item.id} has no output{f' {name!r}' if name else ''}; its outputs: {known}")
