"""How a job looks to a person."""

from collections.abc import Sequence
from datetime import timedelta

import click
import msgspec

from penstock.cli import style
from penstock.cli.exit_codes import REFUSED
from penstock.cli.format import ago, lasted, print_json, print_pairs, print_table
from penstock.model.job import LogLine, Progress
from penstock.model.lifecycle import State
from penstock.model.wire.jobs import FileItem, JobItem

HEADS = ("ID", "TYPE", "STATE", "ATTEMPT", "CREATED", "TOOK", "NOTE")
NOTE_WIDTH = 60


def print_jobs(items: Sequence[JobItem]) -> None:
    """One line per job."""
    print_table(HEADS, [_row(item) for item in items], right=("ATTEMPT", "CREATED", "TOOK"))


def print_job(item: JobItem) -> None:
    """Everything worth knowing about one job; what is empty is left out."""
    print_pairs([(name, text) for name, text in _pairs(item) if text])


def print_ended(item: JobItem, *, as_json: bool) -> int:
    """Print a job that has ended; the exit code to end with."""
    succeeded = item.state is State.SUCCEEDED
    if as_json:
        print_json(item)
    elif succeeded:
        click.echo(msgspec.json.encode(item.result))
    style.say(_summary(item), err=True)
    return 0 if succeeded else REFUSED


def _summary(item: JobItem) -> str:
    attempts = f" at attempt {item.attempt}" if item.attempt > 1 else ""
    span = f" in {lasted(took(item))}" if took(item) is not None else ""
    said = f": {note(item)}" if note(item) else ""
    return f"{item.type} {style.state(item.state)}{span}{attempts}{said}"


def print_submitted(item: JobItem) -> None:
    """Print a new job's id alone on stdout, so that it can be piped, and how to follow it on stderr."""
    click.echo(item.id)
    style.hint(f"{item.state}; follow it with: penstock jobs watch {item.id}")


LOUD = frozenset({"stderr", "warning", "error", "critical"})


def print_line(line: LogLine) -> None:
    """One line that a job wrote."""
    text = style.warned(line.text) if line.stream.lower() in LOUD else line.text
    style.say(f"{style.dim(f'{line.at.astimezone():%H:%M:%S} {line.attempt} {line.stream:<7}')} {text}")


def took(item: JobItem) -> timedelta | None:
    """From the start of the last attempt to the end."""
    if item.started_at is None or item.completed_at is None:
        return None
    return item.completed_at - item.started_at


def note(item: JobItem) -> str:
    """The one thing to know about a job beside its state: why it waits, how far it is, what went wrong."""
    if item.error is not None and not item.state.terminal:
        return f"attempt {item.error.attempt} errored: {item.error.message}"
    if item.error is not None:
        return item.error.message
    if item.progress is not None and not item.state.terminal:
        return _progress(item.progress)
    return item.reason or ""


def state_and_reason(item: JobItem) -> str:
    return style.state(item.state) + (f" ({item.reason})" if item.reason else "")


def _row(item: JobItem) -> tuple[str, ...]:
    attempt = f"{item.attempt}/{item.max_attempts}"
    said = " ".join(note(item).split())
    short = said if len(said) <= NOTE_WIDTH else said[: NOTE_WIDTH - 1] + "…"
    return (item.id, item.type, style.state(item.state), attempt, ago(item.created_at), lasted(took(item)), short)


def _pairs(item: JobItem) -> list[tuple[str, str]]:
    return [
        ("job", item.id),
        ("type", item.type + (f" (queue {item.queue})" if item.queue != item.type else "")),
        ("state", state_and_reason(item)),
        ("attempt", f"{item.attempt} of {item.max_attempts}, fence {item.fence}"),
        ("priority", str(item.priority)),
        ("params", _json(item.params)),
        ("result", _json(item.result) if item.completed_at else ""),
        ("error", _error(item)),
        ("progress", _progress(item.progress) if item.progress and not item.state.terminal else ""),
        ("created", _instant(item, "created_at")),
        ("due", _instant(item, "scheduled_at") if item.scheduled_at > item.created_at else ""),
        ("started", _instant(item, "started_at")),
        ("ended", _instant(item, "completed_at")),
        ("took", lasted(took(item)) if took(item) is not None else ""),
        ("expires", _instant(item, "expires_at")),
        ("timeout", lasted(timedelta(seconds=item.timeout_seconds)) if item.timeout_seconds else "none"),
        ("tags", ", ".join(item.tags)),
        ("inputs", _files(item.inputs)),
        ("outputs", _files(item.outputs)),
        ("worker", item.worker or ""),
        ("retry of", item.retry_of or ""),
        ("schedule", item.schedule or ""),
        ("tick", _instant(item, "tick_at")),
    ]


def _instant(item: JobItem, name: str) -> str:
    at = getattr(item, name)
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S} ({ago(at)})" if at is not None else ""


def _error(item: JobItem) -> str:
    if item.error is None:
        return ""
    kind = item.error.error_class or item.error.code
    lines = [f"{kind}: {item.error.message} (attempt {item.error.attempt})"]
    return "\n".join([*lines, *(item.error.traceback or "").rstrip().splitlines()])


def _progress(progress: Progress) -> str:
    return f"{progress.fraction:.0%}" + (f" {progress.message}" if progress.message else "")


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _files(files: Sequence[FileItem]) -> str:
    return "\n".join(f"{file.name} ({size(file.size)}, {file.content_type})" for file in files)


def size(count: float) -> str:
    """A number of bytes: `812 B`, `4.2 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
