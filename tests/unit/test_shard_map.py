"""The shard map: what settings and notices make of it, where keys and jobs go, and what nobody may see."""

import random
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.clock import to_millis
from penstock.model.ids import ShardId
from penstock.model.notices import Notice, NoticeKind
from penstock.model.shards import (
    RING,
    FormerRing,
    Ring,
    ShardMember,
    ShardNotice,
    ShardState,
    choose,
    merged,
    numbers_used,
    redacted,
    shard_for_key,
    shard_map,
    without_secrets,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)

numbers = st.integers(0, 4095).map(ShardId)
rings = st.lists(numbers, min_size=1, max_size=9, unique=True)
WRITTEN_DOWN = [1, 3, 1, 2, 4]

members = st.builds(
    ShardMember,
    number=numbers,
    url=st.just("u"),
    weight=st.sampled_from([0.0, 0.5, 1.0, 9.0]),
    state=st.sampled_from(list(ShardState)),
    keyed=st.booleans(),
)


def told(number: int, said: ShardNotice | None) -> Notice:
    value = None if said is None else msgspec.json.encode(said)
    return Notice(NoticeKind.SHARD, str(number), value, NOW)


def ring_told(*shards: int) -> Notice:
    value = msgspec.json.encode(Ring(tuple(map(ShardId, shards))))
    return Notice(NoticeKind.RING, RING, value, NOW)


class TestKeys:
    @given(key=st.text(), ring=rings, new=numbers)
    def test_a_ring_that_grows_moves_keys_to_the_new_shard_only(
        self, key: str, ring: list[ShardId], new: ShardId
    ) -> None:
        before, after = shard_for_key(key, ring), shard_for_key(key, [*ring, new])
        assert after in (before, new)

    @given(key=st.text(), ring=rings, rng=st.randoms())
    def test_the_order_of_the_ring_does_not_matter(self, key: str, ring: list[ShardId], rng: random.Random) -> None:
        assert shard_for_key(key, ring) == shard_for_key(key, rng.sample(ring, len(ring)))

    def test_keys_are_spread_evenly(self) -> None:
        homes = [shard_for_key(f"key {number}", [ShardId(0), ShardId(1), ShardId(2)]) for number in range(3000)]
        assert all(900 < homes.count(ShardId(number)) < 1100 for number in range(3))

    def test_the_place_of_a_key_is_the_same_in_every_release(self) -> None:
        """Written down: another hash would give every key a second place."""
        ring = [ShardId(number) for number in range(5)]
        assert [shard_for_key(key, ring) for key in ("a", "b", "c", "schedule/nightly", "")] == WRITTEN_DOWN

    @given(shards=st.lists(members, min_size=1, max_size=6, unique_by=lambda one: one.number), rng=st.randoms())
    def test_the_ring_depends_on_nothing_but_who_is_keyed(self, shards: list[ShardMember], rng: random.Random) -> None:
        other = [one.changed(rng.choice([0.0, 2.0]), rng.choice(list(ShardState))) for one in shards]
        ring = Ring(tuple(sorted(one.number for one in shards if one.keyed)))
        assert shard_map(shards).ring == shard_map(other).ring == ring

    @given(key=st.text(), steps=st.lists(rings, min_size=1, max_size=5))
    def test_wherever_a_key_has_lived_it_is_looked_for(self, key: str, steps: list[list[ShardId]]) -> None:
        ring = Ring(tuple(steps[0]))
        for shards in steps[1:]:
            ring = ring.changed(shards, NOW)
        lived = {shard_for_key(key, shards) for shards in steps}
        assert {ring.shard_for(key), *ring.former_shards(key)} == lived
        assert ring.shard_for(key) not in ring.former_shards(key)

    def test_before_the_first_shard_was_keyed_no_key_has_lived_anywhere(self) -> None:
        ring = Ring(()).changed((ShardId(1),), NOW)
        assert ring.former_shards("order-1") == ()

    def test_a_former_ring_is_remembered_once_and_can_be_forgotten(self) -> None:
        one, two = (ShardId(1),), (ShardId(1), ShardId(2))
        ring = Ring(one).changed(two, NOW).changed(one, NOW).changed(two, NOW)
        assert ring == Ring(two, (FormerRing(one, NOW), FormerRing(two, NOW)))
        assert ring.without(ring.before) == Ring(two)


class TestNewJobs:
    @given(shards=st.lists(members, max_size=6, unique_by=lambda one: one.number), rng=st.randoms())
    def test_only_active_shards_with_a_weight_are_chosen(self, shards: list[ShardMember], rng: random.Random) -> None:
        open_ones = {one.number for one in shards if one.state is ShardState.ACTIVE and one.weight > 0}
        chosen = choose(shards, rng)
        assert (chosen is None) == (not open_ones)
        assert chosen is None or chosen in open_ones

    def test_the_weight_is_the_share(self) -> None:
        shards = [ShardMember(ShardId(0), "a", 1.0), ShardMember(ShardId(1), "b", 3.0)]
        rng = random.Random(1)
        chosen = [choose(shards, rng) for _ in range(4000)]
        assert 2850 < chosen.count(ShardId(1)) < 3150


class TestNotices:
    settled = shard_map([ShardMember(ShardId(0), "zero"), ShardMember(ShardId(1), "one", 2.0)])

    def test_without_notices_the_settings_are_the_map(self) -> None:
        assert merged(self.settled, []) == self.settled

    def test_what_was_said_counts_before_the_settings_and_the_rest_stays(self) -> None:
        found = merged(self.settled, [told(1, ShardNotice(state=ShardState.DRAINING))])
        assert found.members == {
            0: ShardMember(ShardId(0), "zero"),
            1: ShardMember(ShardId(1), "one", 2.0, ShardState.DRAINING),
        }

    def test_a_shard_added_at_run_time_is_in_the_map(self) -> None:
        found = merged(self.settled, [told(7, ShardNotice("seven", 0.5))])
        assert found.members[ShardId(7)] == ShardMember(ShardId(7), "seven", 0.5, keyed=False)

    def test_a_removed_shard_is_gone_though_the_settings_name_it(self) -> None:
        assert set(merged(self.settled, [told(1, None)]).members) == {0}

    def test_a_shard_that_is_new_in_the_settings_only_does_not_join_the_ring(self) -> None:
        found = merged(self.settled, [ring_told(0)])
        assert (found.ring.shards, found.members[ShardId(1)].keyed) == ((0,), False)

    def test_the_instant_at_which_a_ring_was_told_is_its_epoch(self) -> None:
        assert (merged(self.settled, []).epoch, merged(self.settled, [ring_told(0)]).epoch) == (0, to_millis(NOW))

    def test_a_notice_about_a_shard_that_is_nowhere_is_passed_over(self) -> None:
        found = merged(self.settled, [told(9, ShardNotice(weight=2.0))])
        assert found == self.settled

    def test_notices_that_are_not_about_a_number_are_passed_over(self) -> None:
        others = [
            Notice("type", "1", b"{}", NOW),
            Notice("shard", "x", b"{}", NOW),
            Notice("shard", "5000", b"{}", NOW),
        ]
        assert merged(self.settled, others) == self.settled

    def test_numbers_of_removed_shards_count_as_used(self) -> None:
        assert numbers_used(self.settled, [told(5, None)]) == {0, 1, 5}

    def test_what_is_said_later_adds_to_what_was_said(self) -> None:
        assert ShardNotice("seven", 0.5).then(None, ShardState.DOWN) == ShardNotice("seven", 0.5, ShardState.DOWN)


class TestSecrets:
    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("postgresql://u:geheim@h:5432/db", "postgresql://u:***@h:5432/db"),
            ("postgresql://u:ge%40heim@h/db?sslmode=require", "postgresql://u:***@h/db?sslmode=require"),
            ("postgresql://h/db?user=u&password=geheim", "postgresql://h/db?user=u&password=***"),
            ("postgresql://u@h/db", "postgresql://u@h/db"),
            ("sqlite:///var/lib/jobs.db", "sqlite:///var/lib/jobs.db"),
            ("postgresql://[::1", "***"),
        ],
    )
    def test_a_url_is_shown_without_its_password(self, url: str, shown: str) -> None:
        assert redacted(url) == shown

    def test_a_message_is_shown_without_it_too(self) -> None:
        url = "postgresql://u:ge%40heim@h/db"
        text = without_secrets(f"cannot open {url}: no user u with ge@heim (ge%40heim)", url)
        assert text == "cannot open postgresql://u:***@h/db: no user u with *** (***)"
