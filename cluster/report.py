"""What the run says, in lines."""

from collections.abc import Iterator, Sequence

from cluster.checker import Verdict, Wrong
from cluster.recovery import MEANINGS, Recovery

SHOWN = 10


def lines(verdict: Verdict, recoveries: Sequence[Recovery], refused: Sequence[str], unanswered: int) -> Iterator[str]:
    """The whole report; `unanswered` are submits without a key of which nobody knows whether they were done."""
    yield f"jobs acknowledged     {verdict.acknowledged:>8,}"
    yield f"finished once         {verdict.finished_once:>8,}"
    for wrong in Wrong:
        yield f"{wrong:<20}  {verdict.count(wrong):>8,}"
    yield f"requests refused      {len(refused):>8,}"
    yield f"attempts interrupted  {verdict.interrupted:>8,}"
    yield f"unkeyed, unanswered   {unanswered:>8,}"
    yield ""
    yield from _recoveries(recoveries)
    for finding in verdict.findings[:SHOWN]:
        yield f"WRONG  order {finding.n}: {finding.wrong}: {finding.what}"
    for what in refused[:SHOWN]:
        yield f"WRONG  refused: {what}"


def _recoveries(recoveries: Sequence[Recovery]) -> Iterator[str]:
    for one in recoveries:
        longest = "–" if one.seconds is None else f"{one.seconds:.2f} s"
        bar = "–" if one.bar is None else f"≤ {one.bar:g} s"
        yield f"{one.fault:<18} {longest:>9}  {bar:>7}  {'ok' if one.kept else 'TOO LONG':<8}  {MEANINGS[one.fault]}"


def good(verdict: Verdict, refused: Sequence[str]) -> bool:
    """Whether nothing is wrong with any job."""
    whole = verdict.finished_once == verdict.acknowledged
    return whole and not verdict.findings and not refused
