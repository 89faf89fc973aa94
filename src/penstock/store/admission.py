"""What a shard takes. Compared in the write that inserts, so that no process goes by a shard map that has changed."""

from msgspec import Struct

from penstock.model.errors import MapChanged

RETRY_AFTER_SECONDS = 1


class Admission(Struct, frozen=True):
    """A closed shard takes no new job and no new schedule; an open one no key that was placed by another ring."""

    ring: int
    closed: bool

    def takes(self, ring: int | None) -> bool:
        """Whether what was placed by the ring of this epoch is taken; None: its place depends on no ring."""
        return not self.closed and (ring is None or ring == self.ring)


def misplaced(schedule: str) -> MapChanged:
    return MapChanged(
        f"this is not the place of schedule {schedule!r} any more, the shard map has changed; try again",
        retry_after=RETRY_AFTER_SECONDS,
    )
