"""The shard map: all shards, the state that their operator wants of each, and where jobs go.

The map starts from the settings and changes at run time by notices of kind SHARD and RING. A notice holds only what was
changed: a shard of the settings keeps its URL, whose password need not be stored anywhere else.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from penstock.model.clock import Instant, to_millis
from penstock.model.ids import SHARDS_MAX, ShardId
from penstock.model.notices import Notice, NoticeKind


class FormerRing(Struct, frozen=True):
    """A ring as it was until `left_at`. Jobs submitted before then may have their keys there."""

    shards: tuple[ShardId, ...]
    left_at: Instant


class Ring(Struct, frozen=True):
    """The shards that keys live on, whatever their health, state or weight; `before`, newest first, where they did."""

    shards: tuple[ShardId, ...]
    before: tuple[FormerRing, ...] = ()

    def shard_for(self, key: str) -> ShardId:
        """The one shard that a key lives on."""
        return shard_for_key(key, self.shards)

    def former_shards(self, key: str) -> tuple[ShardId, ...]:
        """The other shards that may hold the job of a key; none for most keys."""
        if not self.before:
            return ()
        former = dict.fromkeys(shard_for_key(key, ring.shards) for ring in self.before if ring.shards)
        former.pop(self.shard_for(key), None)
        return tuple(former)

    def changed(self, shards: Sequence[ShardId], now: datetime) -> "Ring":
        """The ring with other shards; the present ones are remembered as a former ring."""
        left = FormerRing(self.shards, now)
        others = [ring for ring in self.before if ring.shards != left.shards]
        return Ring(tuple(sorted(shards)), (left, *others))

    def without(self, forgotten: Sequence[FormerRing]) -> "Ring":
        """The same ring, with some former ones forgotten."""
        return Ring(self.shards, tuple(ring for ring in self.before if ring not in forgotten))


def shard_for_key(key: str, shards: Sequence[ShardId]) -> ShardId:
    """The shard that a key lives on: the highest hash of the two.

    A ring that grows moves keys to the new shard only; one that shrinks moves only those of the shard that left.
    """
    return max(shards, key=lambda number: (_score(key, number), number))


def _score(key: str, number: ShardId) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16, salt=number.to_bytes(16)).digest()


ShardNumber = Annotated[int, Meta(ge=0, lt=SHARDS_MAX)]
Weight = Annotated[float, Meta(ge=0, le=1_000_000)]

HIDDEN = "***"
RING = "ring"
"""The name of the one notice about the ring."""
_SECRETS = frozenset({"password", "sslpassword", "passfile"})


class ShardState(StrEnum):
    """What the operator wants of a shard.

    `active` takes new jobs; `draining` only those whose key lives there, and finishes what it has; `down` is not asked
    for anything.
    """

    ACTIVE = "active"
    DRAINING = "draining"
    DOWN = "down"


class ShardMember(Struct, frozen=True):
    """One shard as the map knows it. `keyed`: keys and schedules may live there."""

    number: ShardId
    url: str
    weight: float = 1.0
    state: ShardState = ShardState.ACTIVE
    keyed: bool = True

    @property
    def takes_new_jobs(self) -> bool:
        return self.state is ShardState.ACTIVE and self.weight > 0

    def changed(self, weight: float | None, state: ShardState | None) -> "ShardMember":
        """With what is not None."""
        return ShardMember(
            self.number,
            self.url,
            self.weight if weight is None else weight,
            self.state if state is None else state,
            self.keyed,
        )


class ShardNotice(Struct, frozen=True, omit_defaults=True):
    """What a notice says about a shard; what is None stays as the settings have it."""

    url: str | None = None
    weight: float | None = None
    state: ShardState | None = None

    def then(self, weight: float | None, state: ShardState | None) -> "ShardNotice":
        """This notice combined with a later one."""
        return ShardNotice(self.url, self.weight if weight is None else weight, self.state if state is None else state)

    def over(self, number: ShardId, settled: ShardMember | None) -> ShardMember | None:
        """The shard with this notice applied; None while its URL is not known."""
        url = self.url or (None if settled is None else settled.url)
        if url is None:
            return None
        before = ShardMember(number, url) if settled is None else replace(settled, url=url)
        return before.changed(self.weight, self.state)


class ShardMap(Struct, frozen=True):
    """All shards by number, and the ring. `epoch` identifies the ring; 0: it comes from the settings alone."""

    members: Mapping[ShardId, ShardMember]
    ring: Ring
    epoch: int = 0

    def with_(self, member: ShardMember) -> "ShardMap":
        """With one more shard, or one that has changed; the ring stays."""
        return ShardMap({**self.members, member.number: member}, self.ring, self.epoch)


def shard_map(members: Iterable[ShardMember]) -> ShardMap:
    """The map of the settings, in which all shards that may be are in the ring."""
    by_number = {member.number: member for member in members}
    return ShardMap(by_number, Ring(tuple(sorted(number for number, one in by_number.items() if one.keyed))))


def merged(settled: ShardMap, notices: Sequence[Notice]) -> ShardMap:
    """The map of the settings with all notices applied.

    Once a notice has set a ring, a shard that only the settings name is not part of it until a notice adds it, because
    another process may not have these settings yet.
    """
    members: dict[ShardId, ShardMember | None] = dict(settled.members)
    for one in notices:
        if (number := _number_of(one)) is not None:
            said = _said(one)
            members[number] = None if said is None else said.over(number, settled.members.get(number))
    told = next((one for one in notices if one.kind == NoticeKind.RING and one.value is not None), None)
    ring = settled.ring if told is None or told.value is None else msgspec.json.decode(told.value, type=Ring)
    return ShardMap(
        {
            number: replace(member, keyed=number in ring.shards)
            for number, member in sorted(members.items())
            if member is not None
        },
        ring,
        0 if told is None else to_millis(told.told_at),
    )


def said_about(number: ShardId, notices: Iterable[Notice]) -> ShardNotice | None:
    """What the notices say about a shard; None when there is none, or it was removed."""
    return next((_said(one) for one in notices if _number_of(one) == number), None)


def numbers_used(settled: ShardMap, notices: Iterable[Notice]) -> set[ShardId]:
    """Every number that a shard has or had: ids of jobs may carry any of them."""
    told = (_number_of(one) for one in notices)
    return set(settled.members) | {number for number in told if number is not None}


def _number_of(notice: Notice) -> ShardId | None:
    if notice.kind != NoticeKind.SHARD or not notice.name.isdecimal() or int(notice.name) >= SHARDS_MAX:
        return None
    return ShardId(int(notice.name))


def _said(notice: Notice) -> ShardNotice | None:
    return None if notice.value is None else msgspec.json.decode(notice.value, type=ShardNotice)


def choose(members: Sequence[ShardMember], rng: random.Random) -> ShardId | None:
    """A shard that takes new jobs, chosen at random by weight; None when none does."""
    open_ones = [member for member in members if member.takes_new_jobs]
    if len(open_ones) <= 1:
        return open_ones[0].number if open_ones else None
    (chosen,) = rng.choices(open_ones, [member.weight for member in open_ones])
    return chosen.number


def redacted(url: str) -> str:
    """The URL without its password."""
    try:
        parts = urlsplit(url)
        password, query = parts.password, parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return HIDDEN
    if password is not None:
        user, _, host = parts.netloc.rpartition("@")
        url = url.replace(parts.netloc, f"{user.partition(':')[0]}:{HIDDEN}@{host}", 1)
    if any(name in _SECRETS for name, _ in query):
        shown = urlencode([(name, HIDDEN if name in _SECRETS else value) for name, value in query], safe="*/")
        url = url.replace(f"?{parts.query}", f"?{shown}", 1)
    return url


def without_secrets(text: str, url: str) -> str:
    """A message about a shard, without the password of its URL."""
    text = text.replace(url, redacted(url))
    for secret in _secrets_of(url):
        text = text.replace(secret, HIDDEN)
    return text


def _secrets_of(url: str) -> list[str]:
    try:
        parts = urlsplit(url)
        found = [unquote(parts.password or ""), *(value for name, value in parse_qsl(parts.query) if name in _SECRETS)]
    except ValueError:
        return []
    return [spelt for secret in found if secret for spelt in (secret, quote(secret, safe=""))]
