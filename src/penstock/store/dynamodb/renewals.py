"""Renewals: one write of the worker's sheet for all its leases, and heads are read only of those not yet checked.

A lease is checked once by each process that renews it, against the head and after the sheet was written: from then on
whatever takes it away leaves a mark in the sheet. Only its own settlement through another process leaves none; such a
renewal is answered as if it still ran, which harms nothing: the worker has ended it, and no other holds that fence.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from penstock.model.clock import millis
from penstock.model.ids import JobId
from penstock.model.job import Lease, Loss, Renewal
from penstock.store.dynamodb.context import ShardContext
from penstock.store.dynamodb.heads import Decide, JobStep
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.leases import loss_of
from penstock.store.dynamodb.moves import extend, holds
from penstock.store.dynamodb.sheets import CANCEL, LOST, Sheet, SheetLease, lease_name

REMEMBERED = 20_000

_encode = msgspec.json.Encoder().encode


class Renewals:
    """Renews leases, and remembers which of them this process has checked or seen the end of."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._checked: OrderedDict[str, bool] = OrderedDict()
        self._ended: OrderedDict[str, bool] = OrderedDict()

    def end(self, job: JobId, fence: int) -> None:
        """Note that a lease was settled or released here."""
        name = lease_name(job, fence)
        self._checked.pop(name, None)
        _remember(self._ended, name, value=True)

    async def renew(self, worker: str, leases: Sequence[Lease], span: timedelta) -> list[Renewal]:
        """One answer each, in order."""
        named: dict[str, Lease] = {}
        for name, lease in _names(leases):
            named[name] = _merge(named.get(name), lease)
        sheet = await self._beat(worker, named, span)
        heads = await self._check(worker, named, span)
        return [self._answer(name, lease, sheet, heads) for name, lease in _names(leases)]

    async def _beat(self, worker: str, named: Mapping[str, Lease], span: timedelta) -> Sheet:
        context = self._context
        sheet = context.sheets.known(worker) or (await context.sheets.read([worker]))[worker]
        until = context.table.clock.latest() + millis(span)
        held = {name: lease for name, lease in named.items() if name not in self._ended}
        entries = {name: _entry(sheet, lease, until) for name, lease in held.items()}
        return await context.sheets.beat(worker, entries, sheet.stale(context.now, entries, self._ended))

    async def _check(self, worker: str, named: Mapping[str, Lease], span: timedelta) -> dict[JobId, Head]:
        """The heads of the leases not checked before. One that another worker holds is extended in its head."""
        unknown = {name: lease for name, lease in named.items() if name not in self._checked}
        if not unknown:
            return {}
        heads = await self._context.heads.read(lease.job for lease in unknown.values())
        foreign = []
        for name, lease in unknown.items():
            head = heads.get(lease.job)
            if head is not None and holds(head, lease.fence):
                if head.worker == worker:
                    _remember(self._checked, name, value=head.course.cancel_requested is not None)
                else:
                    foreign.append(lease)
        return heads | await self._extend(foreign, span)

    async def _extend(self, leases: Sequence[Lease], span: timedelta) -> dict[JobId, Head]:
        if not leases:
            return {}
        until = self._context.table.clock.latest() + millis(span)
        moved = await self._context.heads.move([JobStep(lease.job, _extension(lease, until)) for lease in leases])
        heads = (one.after or one.before for one in moved)
        return {head.id: head for head in heads if head is not None}

    def _answer(self, name: str, lease: Lease, sheet: Sheet, heads: Mapping[JobId, Head]) -> Renewal:
        if name in self._checked:
            loss = Loss.LOST if sheet.marked(LOST, lease.job, lease.fence) else None
            cancel = self._checked[name] or sheet.marked(CANCEL, lease.job, lease.fence)
            return Renewal(lease.job, lease.fence, loss, cancel and loss is None)
        head = heads.get(lease.job)
        if head is None or not holds(head, lease.fence):
            return Renewal(lease.job, lease.fence, loss_of(head, lease.fence))
        return Renewal(lease.job, lease.fence, None, head.course.cancel_requested is not None)


def _merge(before: Lease | None, lease: Lease) -> Lease:
    """What a call tells of one lease, also if it names the lease twice."""
    if before is None:
        return lease
    return Lease(lease.job, lease.fence, lease.progress or before.progress, lease.begun or before.begun)


def _names(leases: Sequence[Lease]) -> list[tuple[str, Lease]]:
    return [(lease_name(lease.job, lease.fence), lease) for lease in leases]


def _entry(sheet: Sheet, lease: Lease, until: int) -> SheetLease:
    """The new entry; what an earlier renewal reported stays."""
    before = sheet.lease(lease.job, lease.fence) or SheetLease(until)
    progress = before.progress if lease.progress is None else _encode(lease.progress)
    return SheetLease(until, before.begun or lease.begun, progress)


def _extension(lease: Lease, until: int) -> Decide:
    progress = None if lease.progress is None else _encode(lease.progress)
    return lambda head: extend(head, lease.fence, until, begun=lease.begun, progress=progress)


def _remember(memory: OrderedDict[str, bool], name: str, *, value: bool) -> None:
    memory[name] = value
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)
