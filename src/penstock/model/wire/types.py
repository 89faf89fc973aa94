"""The bodies of requests and answers about job types."""

from msgspec import Struct

from penstock.model.clock import Instant
from penstock.model.lifecycle import State
from penstock.model.names import Name
from penstock.model.workers import JobType


class TypeItem(JobType, frozen=True, kw_only=True):
    """A declared job type. `declared_at` is when the code was deployed that its declaration is of.

    `signature` names the shape of its params. `aliases` are other types whose jobs are run as this one; `run_as` is the
    type that this one's jobs are run as, if it is not itself.
    """

    declared_at: Instant
    signature: str
    aliases: tuple[str, ...] = ()
    run_as: str | None = None


class TypeList(Struct, frozen=True):
    """Every declared type, by name."""

    types: tuple[TypeItem, ...]


class AliasRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The declared type that jobs of this one are run as."""

    run_as: Name


class RetireRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`cancel`: cancel up to a thousand jobs of the type that wait. Ask again until none is left."""

    cancel: bool = False


class RetiredType(Struct, frozen=True):
    """A type that was taken out of use: its jobs that have not ended, by state, and how many were cancelled now."""

    name: str
    jobs: dict[State, int]
    cancelled: int
