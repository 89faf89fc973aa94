"""The services that the settings name: whether each answers, is up to date, and has a clock that agrees with ours."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from penstock.cli.doctor.dynamodb import examine_table
from penstock.cli.doctor.findings import Finding, fail, missing_extra, ok, warn
from penstock.config import Settings
from penstock.model.clock import SystemClock, seconds
from penstock.model.errors import FleetUnavailable, InvalidSetting, PenstockError, Unavailable
from penstock.model.shards import ShardMember, redacted

T = TypeVar("T")

ANSWERS_WITHIN = seconds(10.0)
SKEW = timedelta(seconds=1)
"""A larger difference between clocks is reported; nothing breaks, since each shard uses its own clock."""


FLEETS = "fleets"
OUR_CONTAINERS = {"penstock.system": "penstock"}
NO_DEFINITION = "set ecs.task_definition, or give each fleet one in [tasks.NAME]"
OUR_PODS = {"penstock/system": "penstock"}


async def examine_backends(settings: Settings) -> list[Finding]:
    """Every shard, the broker and the object store; nothing where the embedded ones are used."""
    findings = [one async for one in _examine_shards(settings)]
    if settings.broker.url:
        extra = "aws" if urlsplit(settings.broker.url).scheme == "sqs" else "redis"
        findings.append(missing_extra("broker", extra) or await _examine_broker(settings))
    if settings.objects.url:
        findings.append(missing_extra("objects", "s3") or await _examine_objects(settings))
    return findings


async def _examine_shards(settings: Settings) -> AsyncIterator[Finding]:
    from penstock.backends import embedded, shard_map

    if embedded(settings):
        return
    try:
        members = shard_map(settings).members.values()
    except InvalidSetting as error:
        yield fail("shards", error.message, "correct store.shards")
        return
    for member in members:
        yield await _examine_shard(member, settings)


async def _examine_shard(member: ShardMember, settings: Settings) -> Finding:
    """Only reads: the doctor applies no migration."""
    name, scheme = f"shard {member.number}", urlsplit(member.url).scheme
    try:
        if scheme == "sqlite":
            return _file(name, Path(urlsplit(member.url).path))
        if scheme == "dynamodb":
            missing = missing_extra(name, "aws")
            return await _wait_for(examine_table(name, member, settings)) if missing is None else missing
        if scheme not in {"postgresql", "postgres"}:
            remedy = "use postgresql://…, dynamodb://TABLE or sqlite:///path"
            return fail(name, f"{redacted(member.url)} is no store", remedy)
        return missing_extra(name, "postgres") or await _examine_database(name, member, settings)
    except PenstockError as error:
        return fail(name, error.message, "see that the database runs and that its URL and account are right")


def _file(name: str, path: Path) -> Finding:
    existing = next(one for one in (path, *path.parents) if one.exists())
    if not os.access(existing, os.R_OK | os.W_OK):
        return fail(name, f"{existing} cannot be written", "give yourself access, or correct its URL")
    return ok(name, f"{path}" if existing == path else f"{path} (made at the first start)")


async def _examine_database(name: str, member: ShardMember, settings: Settings) -> Finding:
    from penstock.store.postgres.migrate import named
    from penstock.store.postgres.server_clock import inspect

    seen = await _wait_for(inspect(member.url))
    skew = abs(seen.now - SystemClock().now())
    if seen.shard is not None and seen.shard != member.number:
        return fail(name, f"{redacted(member.url)} holds shard {seen.shard}", "correct its number or its URL")
    if not seen.writable:
        return fail(name, f"{redacted(member.url)} takes no writes", "name the primary, or several hosts")
    if seen.pending and not settings.store.migrate:
        return fail(name, f"it lacks {named(seen.pending)}", "run: penstock db migrate")
    if seen.pending:
        return warn(name, f"it lacks {named(seen.pending)}", "the next start applies it; or now: penstock db migrate")
    if skew > SKEW:
        return warn(name, f"its clock differs from ours by {skew.total_seconds():.1f} s", "run NTP on both machines")
    return ok(name, f"{redacted(member.url)} answers and is up to date")


async def _examine_broker(settings: Settings) -> Finding:
    from penstock.backends import open_broker

    try:
        broker = await _wait_for(open_broker(settings, SystemClock()))
        try:
            held = sum((await _wait_for(broker.depths())).values())
        finally:
            await broker.close()
    except PenstockError as error:
        return fail(
            "broker", error.message, "jobs still flow, by looking into the store; start it or correct broker.url"
        )
    return ok("broker", f"{redacted(settings.broker.url)} answers and holds {held} tickets")


async def _examine_objects(settings: Settings) -> Finding:
    from penstock.backends import open_objects

    key = f"doctor/{random.getrandbits(64):016x}"
    try:
        objects = await _wait_for(open_objects(settings, SystemClock()))
        try:
            await _wait_for(objects.put(key, _read_probe(), "text/plain"))
            await _wait_for(objects.delete(key))
        finally:
            await objects.close()
    except PenstockError as error:
        return fail("objects", error.message, "see that the bucket is there and the credentials may write to it")
    return ok("objects", f"{settings.objects.url} can be read and written")


async def _read_probe() -> AsyncIterator[bytes]:
    yield b"x"


async def _wait_for(asked: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(ANSWERS_WITHIN.total_seconds()):
            return await asked
    except TimeoutError:
        raise Unavailable(f"no answer within {ANSWERS_WITHIN.total_seconds():g} s") from None


async def examine_fleets(settings: Settings) -> list[Finding]:
    """The backend of the fleets; nothing for processes of this machine."""
    match settings.fleet.backend:
        case "containers":
            return [missing_extra(FLEETS, "containers") or await _examine_containers(settings)]
        case "kubernetes":
            return [missing_extra(FLEETS, "kubernetes") or await _examine_pods(settings)]
        case "ecs":
            return [missing_extra(FLEETS, "aws") or await _examine_tasks(settings)]
        case _:
            return []


async def _examine_tasks(settings: Settings) -> Finding:
    from penstock.autoscaler.backends.ecs.cluster import EcsCluster
    from penstock.autoscaler.backends.ecs.task import started_by

    cluster = EcsCluster(settings.ecs.cluster)
    try:
        status = await cluster.probe()
        there = await cluster.find_tasks(startedBy=started_by("penstock"))
    except (FleetUnavailable, InvalidSetting) as error:
        return fail(FLEETS, error.message, "check AWS_REGION and the credentials, and allow the actions of ECS")
    finally:
        await cluster.close()
    if not settings.ecs.task_definition and settings.ecs.mode == "autoscaler":
        return warn(FLEETS, f"cluster {settings.ecs.cluster} answers, but there is no task definition", NO_DEFINITION)
    return ok(FLEETS, f"cluster {settings.ecs.cluster} is {status} and has {len(there)} tasks of workers")


async def _examine_containers(settings: Settings) -> Finding:
    from penstock.autoscaler.backends.containers.engine import ContainerEngine

    fleet, engine = settings.fleet, ContainerEngine(settings.fleet.engine)
    try:
        there = await engine.containers(OUR_CONTAINERS)
        lacks = bool(fleet.image) and not await engine.has_image(fleet.image)
    except FleetUnavailable as error:
        remedy = "start Docker or `podman system service`, or correct fleet.engine"
        return fail(FLEETS, error.message, remedy)
    finally:
        await engine.close()
    if lacks:
        remedy = "build or pull it there; it is tried to be pulled when the first worker is wanted"
        return warn(FLEETS, f"{fleet.engine} answers and has no image {fleet.image}", remedy)
    return ok(FLEETS, f"{fleet.engine} answers and has {len(there)} containers of workers")


async def _examine_pods(settings: Settings) -> Finding:
    from penstock.autoscaler.backends.kubernetes.cluster import Cluster

    cluster = Cluster(None, settings.fleet.namespace or None)
    try:
        there = await cluster.pods(OUR_PODS)
    except FleetUnavailable as error:
        return fail(FLEETS, error.message, "run this where the autoscaler runs, or set KUBECONFIG")
    finally:
        await cluster.close()
    return ok(FLEETS, f"the cluster answers and has {len(there)} pods of workers")
