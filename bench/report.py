"""What a run found, as Markdown: medians with their range, and Penstock's ratio to each peer."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from calibration import Calibration
from catalog import PEERS, Peer

_COLUMNS = {
    "enqueue": "enqueue/s",
    "callers": "64 callers/s",
    "bulk": "bulk/s",
    "drain": "drain/s",
    "p50": "p50 ms",
    "p99": "p99 ms",
    "few": "growth: few/s",
    "queued": "many queued/s",
    "scheduled": "many scheduled/s",
}
_LATENCIES = ("p50", "p99")


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers that one step of one repetition gave for one peer."""

    repetition: int
    part: str
    peer: str
    numbers: dict[str, float]
    notes: tuple[str, ...] = ()


def markdown(samples: Sequence[Sample], calibrations: Sequence[Calibration]) -> str:
    """The whole report."""
    sections = [_table(samples), _ratios(samples), _notes(samples), _machine(calibrations)]
    return "\n\n".join(section for section in sections if section)


def progress(sample: Sample) -> str:
    """One line for one finished step."""
    numbers = ", ".join(f"{_COLUMNS[name]} {_shown(name, number)}" for name, number in sample.numbers.items())
    notes = "".join(f"  ({note.splitlines()[0]})" for note in sample.notes)
    return f"  {sample.part:8} {sample.peer:16} {numbers or '–'}{notes}"


def _table(samples: Sequence[Sample]) -> str:
    names = [name for name in _COLUMNS if any(name in sample.numbers for sample in samples)]
    peers = list(dict.fromkeys(sample.peer for sample in samples))
    head = ["| peer | " + " | ".join(_COLUMNS[name] for name in names) + " | keeps; acknowledges |"]
    rule = ["|---" * (len(names) + 2) + "|"]
    rows = [
        f"| {peer} | " + " | ".join(_cell(samples, peer, name) for name in names) + f" | {_peer(peer).keeps} |"
        for peer in peers
    ]
    return "\n".join(head + rule + rows)


def _cell(samples: Sequence[Sample], peer: str, name: str) -> str:
    numbers = list(_by_repetition(samples, peer, name).values())
    return _range(name, numbers) if numbers else "–"


def _ratios(samples: Sequence[Sample]) -> str:
    measured = list(dict.fromkeys(sample.peer for sample in samples))
    lines = [
        line
        for ours in measured
        for theirs in measured
        if _compared(ours, theirs)
        for name, other in _compared_numbers(theirs)
        if (line := _ratio_line(samples, (ours, name), (theirs, other)))
    ]
    return "\n".join(["Ratios, repetition by repetition:", "", *lines]) if lines else ""


def _compared(ours: str, theirs: str) -> bool:
    """Penstock with its peers, a grown one with the same when it is empty, and this checkout with another."""
    if "@" in ours or not _peer(ours).own_server:
        return False
    return not _peer(theirs).own_server or ours == f"{theirs}-grown" or theirs.startswith(f"{ours}@")


def _compared_numbers(theirs: str) -> list[tuple[str, str]]:
    """Each number with its like; and many callers with one, for peers that cannot have many."""
    many_with_one = [] if _peer(theirs).own_server else [("callers", "enqueue")]
    return [*zip(_COLUMNS, _COLUMNS, strict=True), *many_with_one]


def _peer(name: str) -> Peer:
    """The catalogue's entry for a peer, whichever checkout it was measured in."""
    return PEERS[name.partition("@")[0]]


def _ratio_line(samples: Sequence[Sample], ours: tuple[str, str], theirs: tuple[str, str]) -> str:
    """Pairs within a repetition, so that a slow minute of the machine slows both sides."""
    mine, other = _by_repetition(samples, *ours), _by_repetition(samples, *theirs)
    ratios = [mine[repetition] / other[repetition] for repetition in sorted(mine.keys() & other.keys())]
    if not ratios:
        return ""
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    direction = " (lower is better)" if ours[1] in _LATENCIES else ""
    against = theirs[0] if ours[1] == theirs[1] else " ".join(theirs)
    return f"- {ours[0]} {ours[1]} ÷ {against}: **{middle:.2f}×** [{low:.2f}–{high:.2f}]{direction}"


def _notes(samples: Sequence[Sample]) -> str:
    lines = [
        f"- {sample.peer} {sample.part}, repetition {sample.repetition}: {note}"
        for sample in samples
        for note in sample.notes
    ]
    return "\n".join(["Look into these before you use the numbers:", "", *lines]) if lines else ""


def _machine(calibrations: Sequence[Calibration]) -> str:
    each = [f"{c.fdatasync_us:.0f} µs / {c.cpu_ms:.0f} ms" for c in calibrations]
    return "Machine in each repetition (fdatasync p50 / CPU loop): " + ", ".join(each) if each else ""


def _by_repetition(samples: Sequence[Sample], peer: str, name: str) -> dict[int, float]:
    return {
        sample.repetition: sample.numbers[name] for sample in samples if sample.peer == peer and name in sample.numbers
    }


def _range(name: str, numbers: list[float]) -> str:
    middle = _shown(name, statistics.median(numbers))
    return f"{middle} [{_shown(name, min(numbers))}–{_shown(name, max(numbers))}]"


def _shown(name: str, number: float) -> str:
    return f"{number:.1f}" if name in _LATENCIES else f"{number:,.0f}"
