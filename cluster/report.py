"""What the run says, in lines."""

from collections.abc import Iterator, Sequence

from cluster.checker import Verdict, Wrong
from cluster.deliveries import BadDelivery, DeliveryVerdict
from cluster.placement import Placement
from cluster.recovery import MEANINGS, Recovery
from cluster.server_faults import ServerFault

SHOWN = 10


def lines(
    verdict: Verdict,
    placement: Placement,
    recoveries: Sequence[Recovery],
    refused: Sequence[str],
    unanswered: int,
    faults: Sequence[ServerFault],
    deliveries: Sequence[DeliveryVerdict] = (),
) -> Iterator[str]:
    """The whole report; `unanswered` are submits without a key of which it is unknown whether they were done."""
    yield f"jobs acknowledged     {verdict.acknowledged:>8,}"
    yield f"finished once         {verdict.finished_once:>8,}"
    for wrong in Wrong:
        yield f"{wrong:<20}  {verdict.count(wrong):>8,}"
    yield f"requests refused      {len(refused):>8,}"
    yield f"errors in API logs    {len(faults):>8,}"
    yield f"attempts interrupted  {verdict.interrupted:>8,}"
    yield f"unkeyed, unanswered   {unanswered:>8,}"
    yield ""
    yield from _placement(placement)
    yield ""
    for one in deliveries:
        yield from _deliveries(one)
        yield ""
    yield from _recoveries(recoveries)
    for finding in verdict.findings[:SHOWN]:
        yield f"WRONG  order {finding.n}: {finding.wrong}: {finding.what}"
    for what in refused[:SHOWN]:
        yield f"WRONG  refused: {what}"
    for one in deliveries:
        for bad in one.findings[:SHOWN]:
            yield f"WRONG  webhooks {one.name}: {bad.wrong}: {bad.what}"
    for fault in faults[:SHOWN]:
        yield f"WRONG  in {fault.log}:"
        yield from (f"       {line}" for line in fault.lines)


def _placement(placement: Placement) -> Iterator[str]:
    yield f"SDK requests, no key  {placement.requests:>8,}"
    yield f"failed, shard died    {placement.on_the_way:>8,}  on their way to it"
    yield f"failed otherwise      {placement.failed:>8,}  {_mark(good=not placement.failed)}"
    if placement.share is not None and placement.fair is not None:
        verdict = _mark(good=placement.spread)
        yield f"to the added shard    {placement.share:>8.0%}  {verdict}; its share is {placement.fair:.0%}"
    yield f"to the draining one   {placement.drained:>8,}  {_mark(good=not placement.drained)}"


def _deliveries(verdict: DeliveryVerdict) -> Iterator[str]:
    yield f"webhooks: {verdict.name:<10}  {verdict.requests:>8,}  requests accepted"
    yield f"events                {verdict.events:>8,}  and {verdict.repeated:,} repeated"
    for wrong in BadDelivery:
        count = verdict.count(wrong)
        yield f"{wrong:<20}  {count:>8,}  {_mark(good=not count)}"


def _mark(*, good: bool) -> str:
    return "ok" if good else "WRONG"


def _recoveries(recoveries: Sequence[Recovery]) -> Iterator[str]:
    for one in recoveries:
        longest = "–" if one.seconds is None else f"{one.seconds:.2f} s"
        bar = "–" if one.bar is None else f"≤ {one.bar:g} s"
        yield f"{one.fault:<18} {longest:>9}  {bar:>7}  {'ok' if one.kept else 'TOO LONG':<8}  {MEANINGS[one.fault]}"


def good(
    verdict: Verdict,
    placement: Placement,
    refused: Sequence[str],
    faults: Sequence[ServerFault],
    deliveries: Sequence[DeliveryVerdict] = (),
) -> bool:
    """Whether nothing is wrong with any job and event, each went where it should, and no API met a fault of its own."""
    told = all(one.events and not one.findings for one in deliveries)
    whole = verdict.finished_once == verdict.acknowledged and told
    return whole and placement.good and not (verdict.findings or refused or faults)
