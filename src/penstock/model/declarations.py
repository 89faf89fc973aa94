"""Job types as the registry keeps them: which declaration of a type counts, and the signatures it had before. Pure."""

import hashlib
from collections.abc import Container, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from penstock.model.clock import EPOCH, Instant
from penstock.model.workers import JobType

Schema = dict[str, Any] | None
"""The shape of params; None accepts anything."""

UNFIT_FOR = "!"

EARLIER_KEPT = 9
"""How many signatures before the current one are known of a type: those that workers may still have."""

APPS_KEPT = 20
"""How many apps are known of a type: those whose code was deployed last."""

EARLIER_COUNTS_FOR = timedelta(days=1)
"""How long a replaced signature that no worker has is still accepted: a worker with it may start again."""

REFRESHED_AFTER = timedelta(minutes=1)
"""A declaration that says nothing new is written again only this long after the one that is known."""


class Earlier(Struct, frozen=True):
    """A shape that the params of a type had until newer code declared another."""

    params_schema: Schema
    until: Instant


class DeclaredType(JobType, frozen=True, kw_only=True):
    """A job type as it was declared last. `declared_at` is when that code was deployed, by the shard's clock.

    `signature` names the shape of its params. `earlier` are other shapes that workers have declared, by signature,
    newest first: jobs may have been accepted with them, and workers that are merely older have them still. `left_at` is
    when the last worker that had it left, as far as one has. `apps` are those that have it, each with when its code was
    deployed; none where that was not said.
    """

    declared_at: Instant = EPOCH
    signature: str = ""
    earlier: Mapping[str, Earlier] = {}
    left_at: Instant | None = None
    apps: Mapping[str, Instant] = {}

    def schemas(self, now: datetime, up: Container[str]) -> dict[str, Schema]:
        """The shapes of its params that count, by signature, the current one first.

        Of the earlier ones those that a worker which is `up` has, and those of the last day: a rollout may be undone,
        and the last worker to start does not always have the newest code.
        """
        earlier = {
            name: one.params_schema
            for name, one in self.earlier.items()
            if name in up or now - one.until < EARLIER_COUNTS_FOR
        }
        return {self.signature: self.params_schema, **earlier}


def declare(
    declared: JobType, deployed_at: datetime, known: DeclaredType | None, app: str | None = None
) -> DeclaredType:
    """What counts once code that was deployed at an instant has declared a type: `known` itself if nothing changes.

    Of two declarations the one deployed later counts, whenever each of them arrives.
    """
    counting = _newer(declared, deployed_at, known)
    before = None if app is None else counting.apps.get(app)
    if app is None or (before is not None and deployed_at - before < REFRESHED_AFTER):
        return counting
    newest = sorted({**counting.apps, app: deployed_at}.items(), key=lambda one: one[1])[-APPS_KEPT:]
    return replace(counting, apps=dict(newest)) if app in dict(newest) else counting


def _newer(declared: JobType, deployed_at: datetime, known: DeclaredType | None) -> DeclaredType:
    if known is None:
        return _declared(declared, deployed_at, {}, {})
    if deployed_at < known.declared_at:
        return _with_earlier(known, Earlier(declared.params_schema, known.declared_at))
    if declared == _plain(known) and deployed_at - known.declared_at < REFRESHED_AFTER:
        return known
    earlier = {known.signature: Earlier(known.params_schema, deployed_at), **known.earlier}
    return _declared(declared, deployed_at, earlier, known.apps)


def unfit_type(name: str, signature: str) -> str:
    """The type name of a job that waits for a worker whose handler takes other params than this signature.

    No declared type can have such a name, so only a worker that asks for it gets the job.
    """
    return f"{plain_type(name)}{UNFIT_FOR}{signature}"


def plain_type(name: str) -> str:
    """The declared type of a job, also while it waits under an unfit name."""
    return name.partition(UNFIT_FOR)[0] if UNFIT_FOR in name else name


def unfit_for(name: str) -> str | None:
    """The signature that a waiting job did not fit, if there is one."""
    return name.partition(UNFIT_FOR)[2] or None


def signature_of(schema: Schema) -> str:
    """A short name for a shape of params: workers with the same one take the same params."""
    return hashlib.sha256(msgspec.json.encode(schema, order="deterministic")).hexdigest()[:16]


def _declared(
    declared: JobType, deployed_at: datetime, before: Mapping[str, Earlier], apps: Mapping[str, datetime]
) -> DeclaredType:
    signature = signature_of(declared.params_schema)
    earlier = [(name, schema) for name, schema in before.items() if name != signature][:EARLIER_KEPT]
    return DeclaredType(
        **asdict(declared), declared_at=deployed_at, signature=signature, earlier=dict(earlier), apps=apps
    )


def _with_earlier(known: DeclaredType, earlier: Earlier) -> DeclaredType:
    signature = signature_of(earlier.params_schema)
    if signature == known.signature or signature in known.earlier or len(known.earlier) >= EARLIER_KEPT:
        return known
    return replace(known, earlier={**known.earlier, signature: earlier})


def _plain(declared: DeclaredType) -> JobType:
    """The declaration itself, without what the registry adds."""
    return JobType(**{name: getattr(declared, name) for name in JobType.__struct_fields__})
