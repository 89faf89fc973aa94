"""The engines that the settings name: does each answer, can it be written, and does its clock agree with ours."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from typing import TypeVar

from penstock.cli.doctor.finding import Finding, fail, ok, warn
from penstock.config import Settings
from penstock.model.errors import InvalidSetting, PenstockError, Unavailable
from penstock.model.shards import Member, redacted
from penstock.model.timing import SystemClock, seconds

T = TypeVar("T")

ANSWERS_WITHIN = seconds(10.0)
SKEW = timedelta(seconds=1)
"""Clocks that differ by more than this are worth a word; nothing breaks, since each shard goes by its own."""


async def examine(settings: Settings) -> list[Finding]:
    """Every shard, the broker and the object store; nothing for what lies in the data folder."""
    findings = [one async for one in _shards(settings)]
    if settings.broker.url:
        findings.append(await _broker(settings))
    if settings.objects.url:
        findings.append(await _objects(settings))
    return findings


async def _shards(settings: Settings) -> AsyncIterator[Finding]:
    from penstock.runtime.backends import embedded, shard_map

    if embedded(settings):
        return
    try:
        members = shard_map(settings).members.values()
    except InvalidSetting as fault:
        yield fail("shards", fault.message, "correct store.shards")
        return
    for member in members:
        yield await _shard(member, settings)


async def _shard(member: Member, settings: Settings) -> Finding:
    from penstock.runtime.backends import open_shard

    name, clock = f"shard {member.number}", SystemClock()
    try:
        shard = await _in_time(open_shard(member.number, member.url, settings, clock))
        try:
            await _in_time(shard.probe())
            skew = abs(await _in_time(shard.now()) - clock.now())
        finally:
            await shard.close()
    except PenstockError as trouble:
        return fail(name, trouble.message, "see that the database runs and that its URL and account are right")
    if skew > SKEW:
        return warn(name, f"its clock differs from ours by {skew.total_seconds():.1f} s", "run NTP on both machines")
    return ok(name, f"{redacted(member.url)} can be read and written")


async def _broker(settings: Settings) -> Finding:
    from penstock.runtime.backends import open_broker

    try:
        broker = await _in_time(open_broker(settings, SystemClock()))
        try:
            await _in_time(broker.epoch())
            held = sum((await _in_time(broker.depths())).values())
        finally:
            await broker.close()
    except PenstockError as trouble:
        return fail(
            "broker", trouble.message, "jobs still flow, by looking into the store; start it or correct broker.url"
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
    except PenstockError as trouble:
        return fail("objects", trouble.message, "see that the bucket is there and the credentials may write to it")
    return ok("objects", f"{settings.objects.url} can be read and written")


async def _one_byte() -> AsyncIterator[bytes]:
    yield b"x"


async def _in_time(asked: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(ANSWERS_WITHIN.total_seconds()):
            return await asked
    except TimeoutError:
        raise Unavailable(f"no answer within {ANSWERS_WITHIN.total_seconds():g} s") from None
