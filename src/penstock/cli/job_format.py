"""How a job looks to a person."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from penstock.cli import style
from penstock.cli.format import ago, lasted, print_pairs, print_table
from penstock.model.job import Progress
from penstock.model.wire.jobs import FileItem, JobItem

HEADS = ("ID", "TYPE", "STATE", "ATTEMPT", "CREATED", "TOOK", "NOTE")
NOTE_WIDTH = 60


def print_jobs(items: Sequence[JobItem]) -> None:
    """One line per job."""
    print_table(HEADS, [_row(item) for item in items], right=("ATTEMPT", "CREATED", "TOOK"))


def print_job(item: JobItem) -> None:
    """Everything worth knowing about one job; what is empty is left out."""
    print_pairs([(name, text) for name, text in _pairs(item) if text])


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
