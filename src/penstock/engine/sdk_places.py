"""Submits under keys of the SDK: taken where the key says, or answered with the shards to choose from."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from penstock.model.errors import ChooseShard, MapChanged, StoreUnavailable
from penstock.model.ids import ShardId
from penstock.model.sdk_keys import SdkKey, read_sdk_key, write_shards
from penstock.store import Store


class SdkPlacement:
    """Decides whether a key of the SDK may go on to live where it says. A user's own key always may."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @contextmanager
    def choosing(self, key: str | None, *, repeated: bool) -> Iterator[None]:
        """Within, the job is submitted. ChooseShard where nothing is written and the client may name another shard.

        `repeated`: an earlier request under this key may have been carried out, so it stays where it is.
        """
        named = None if key is None else read_sdk_key(key)
        if named is None or repeated:
            yield
            return
        self._check(named)
        try:
            yield
        except StoreUnavailable as error:
            others = {number: weight for number, weight in (self._store.takers() or {}).items() if number != named.home}
            if not others or not (error.unsent or isinstance(error, MapChanged)):
                raise
            raise _choose(others, error.message) from error

    def shards(self, key: str | None) -> Mapping[ShardId, float] | None:
        """What the client is told to choose its next keys from; None if it need not choose."""
        return self._store.takers() if key is not None and read_sdk_key(key) is not None else None

    def _check(self, named: SdkKey) -> None:
        takers = self._store.takers()
        if takers and (named.home is None or named.home not in takers):
            said = "there are several shards" if named.home is None else f"shard {named.home} takes no new jobs now"
            raise _choose(takers, said)


def _choose(takers: Mapping[ShardId, float], why: str) -> ChooseShard:
    return ChooseShard(f"{why}; name one of {', '.join(map(str, takers))} in the key", shards=write_shards(takers))
