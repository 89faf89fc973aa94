"""The engines that the settings name: does each answer, is it up to date, and does its clock agree with ours."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from penstock.cli.doctor.finding import Finding, fail, ok, warn
from penstock.config import Settings
from penstock.model.clock import SystemClock, seconds
from penstock.model.errors import InvalidSetting, MissingExtra, PenstockError, Unavailable
from penstock.model.extras import require
from penstock.model.shards import ShardMember, redacted

T = TypeVar("T")

ANSWERS_WITHIN = seconds(10.0)
SKEW = timedelta(seconds=1)
"""Clocks that differ by more than this are worth a word; nothing breaks, since each shard goes by its own."""


async def examine(settings: Settings) -> list[Finding]:
    """Every shard, the broker, the object store and the fleets' library; nothing for what needs none of them."""
    findings = [one async for one in _shards(settings)]
    if settings.broker.url:
        findings.append(lacking("broker", "redis") or await _broker(settings))
    if settings.objects.url:
        findings.append(lacking("objects", "s3") or await _objects(settings))
    return findings


def lacking(name: str, extra: str) -> Finding | None:
    """What to say where an extra is needed and not installed."""
    try:
        require(extra)
    except MissingExtra as missing:
        return fail(name, missing.missing, missing.remedy)
    return None


async def _shards(settings: Settings) -> AsyncIterator[Finding]:
    from penstock.runtime.backends import embedded, shard_map

    if embedded(settings):
        return
    try:
        members = shard_map(settings).members.values()
    except InvalidSetting as error:
        yield fail("shards", error.message, "correct store.shards")
        return
    for member in members:
        yield await _shard(member, settings)


async def _shard(member: ShardMember, settings: Settings) -> Finding:
    """Only looked at: whoever asks what is wrong has not asked for a migration."""
    name, scheme = f"shard {member.number}", urlsplit(member.url).scheme
    try:
        if scheme == "sqlite":
            return _file(name, Path(urlsplit(member.url).path))
        if scheme not in {"postgresql", "postgres"}:
            return fail(name, f"{redacted(member.url)} is no store", "use postgresql://… or sqlite:///path")
        return lacking(name, "postgres") or await _database(name, member, settings)
    except PenstockError as error:
        return fail(name, error.message, "see that the database runs and that its URL and account are right")


def _file(name: str, path: Path) -> Finding:
    place = next(one for one in (path, *path.parents) if one.exists())
    if not os.access(place, os.R_OK | os.W_OK):
        return fail(name, f"{place} cannot be written", "give yourself access, or correct its URL")
    return ok(name, f"{path}" if place == path else f"{path} (made at the first start)")


async def _database(name: str, member: ShardMember, settings: Settings) -> Finding:
    from penstock.store.postgres.migrate import named
    from penstock.store.postgres.server_clock import inspect

    seen = await _in_time(inspect(member.url))
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


async def _broker(settings: Settings) -> Finding:
    from penstock.runtime.backends import open_broker

    try:
        broker = await _in_time(open_broker(settings, SystemClock()))
        try:
            held = sum((await _in_time(broker.depths())).values())
        finally:
            await broker.close()
    except PenstockError as error:
        return fail(
            "broker", error.message, "jobs still flow, by looking into the store; start it or correct broker.url"
        )
    return ok("broker", f"{redacted(settings.broker.url)} answers and holds {held} tickets")


async def _objects(settings: Settings) -> Finding:
    from penstock.runtime.backends import open_objects

    key = f"doctor/{random.getrandbits(64):016x}"
    try:
        objects = await _in_time(open_objects(settings, SystemClock()))
        try:
            await _in_time(objects.put(key, _one_byte(), "text/plain"))
            await _in_time(objects.delete(key))
        finally:
            await objects.close()
    except PenstockError as error:
        return fail("objects", error.message, "see that the bucket is there and the credentials may write to it")
    return ok("objects", f"{settings.objects.url} can be read and written")


async def _one_byte() -> AsyncIterator[bytes]:
    yield b"x"


async def _in_time(asked: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(ANSWERS_WITHIN.total_seconds()):
            return await asked
    except TimeoutError:
        raise Unavailable(f"no answer within {ANSWERS_WITHIN.total_seconds():g} s") from None
