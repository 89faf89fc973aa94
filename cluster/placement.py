"""Where the SDK's submits without a key went, and which of them failed: from histories alone. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from cluster.records import Call, Event, Phase
from cluster.recovery import Fault, Harm, shard_of

NOTICED_SECONDS = 5.0
"""In this time every API has noticed that a shard is dead or frozen: two probes, a second apart, each with a second."""

LEAST_PART = 0.5
"""Chance spreads few requests unevenly: an added shard must get this part of its share at least."""


class SdkRequest(Struct, frozen=True):
    """One call of the SDK: when it was made and ended, and the shard that took its jobs, or that its error blames."""

    at: float
    until: float
    shard: int | None
    ok: bool


class Placement(Struct, frozen=True, kw_only=True):
    """`on_the_way`: failed on a shard that died under them. `failed`: all others that failed.

    `share` is the part of the requests that went to the added shard while it was active, of a `fair` one; both are
    None when no shard was added. `drained` went to a shard after every API knew that it was draining.
    """

    requests: int
    on_the_way: int
    failed: int
    share: float | None
    fair: float | None
    drained: int

    @property
    def spread(self) -> bool:
        """Whether the added shard got its share."""
        return self.share is None or self.fair is None or self.share >= self.fair * LEAST_PART

    @property
    def good(self) -> bool:
        return self.spread and not self.failed and not self.drained


def place(harms: Sequence[Harm], events: Iterable[Event]) -> Placement:
    """What became of the requests of the SDK, given what was done to the shards meanwhile."""
    made = list(_requests(events))
    broken = [request for request in made if not request.ok]
    on_the_way = sum(any(_died_under(harm, request) for harm in harms) for request in broken)
    share, fair = _share(harms, made)
    return Placement(
        requests=len(made),
        on_the_way=on_the_way,
        failed=len(broken) - on_the_way,
        share=share,
        fair=fair,
        drained=sum(_drained(harm, request) for harm in harms for request in made),
    )


def _requests(events: Iterable[Event]) -> Iterator[SdkRequest]:
    made: dict[str, list[Event]] = {}
    for event in events:
        if event.call is Call.SUBMIT and event.request is not None:
            made.setdefault(event.request, []).append(event)
    for parts in made.values():
        last = parts[-1]
        shard = shard_of(last.job) if last.job else last.shard
        yield SdkRequest(parts[0].at, last.at, shard, last.phase is Phase.OK)


def _died_under(harm: Harm, request: SdkRequest) -> bool:
    """Whether a shard died, or its primary froze, while the request may have been on its way to it."""
    dies = harm.fault in {Fault.SHARD, Fault.DEAD, Fault.FREEZE}
    return dies and request.shard == harm.shard and request.at - NOTICED_SECONDS < harm.at < request.until


def _share(harms: Sequence[Harm], made: Sequence[SdkRequest]) -> tuple[float | None, float | None]:
    """The part of the requests that went to the added shard, and what would be fair, all weights being equal."""
    changes: Mapping[Fault, Harm] = {harm.fault: harm for harm in harms if harm.fault in {Fault.ADD, Fault.DRAIN}}
    if len(changes) < 2:
        return None, None
    added, until = changes[Fault.ADD], changes[Fault.DRAIN].at
    during = [request.shard for request in made if request.ok and added.back_at < request.at < until]
    return during.count(added.shard) / max(1, len(during)), 1 / len({*during, added.shard})


def _drained(harm: Harm, request: SdkRequest) -> bool:
    return harm.fault is Fault.DRAIN and request.ok and request.shard == harm.shard and request.at > harm.back_at
