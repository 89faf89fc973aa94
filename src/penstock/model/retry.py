"""Retry policies: which errors are tried again, how often, and after how long. Pure arithmetic."""

import random
from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from penstock.model.clock import seconds
from penstock.model.errors import Invalid
from penstock.model.text import readable

Positive = Annotated[int, Meta(ge=1, le=1000)]
Span = Annotated[float, Meta(ge=0, le=31_536_000)]


class RetryKind(StrEnum):
    """How the wait grows with each attempt."""

    NONE = "none"
    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class Retry(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """A retry policy, as it stands on the wire and in the store.

    After attempt *n* has errored the wait is `delay` (fixed), `n × delay` (linear) or `delay × factor^(n-1)`
    (exponential), never above `cap`; with `jitter` a random part of it, so that many jobs do not come back at once.
    `never` names exception classes (`ValueError`, or with the module: `app.errors.Gone`) that are not tried again, nor
    are their subclasses. Given as classes, they become their names.
    """

    kind: RetryKind = RetryKind.EXPONENTIAL
    max_attempts: Positive = 3
    delay_seconds: Span = 1.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    cap_seconds: Span = 300.0
    jitter: bool = True
    never: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.never != ():
            force_setattr(self, "never", _names_of(self.never))

    @classmethod
    def none(cls) -> Self:
        """One attempt, whatever happens in it."""
        return cls(kind=RetryKind.NONE, max_attempts=1)

    @classmethod
    def fixed(cls, delay: timedelta | float = 1.0, max_attempts: int = 3, **more: object) -> Self:
        """Always the same wait."""
        return cls._of(RetryKind.FIXED, delay, max_attempts, more)

    @classmethod
    def linear(cls, delay: timedelta | float = 1.0, max_attempts: int = 3, **more: object) -> Self:
        """A wait that grows by `delay` with each attempt."""
        return cls._of(RetryKind.LINEAR, delay, max_attempts, more)

    @classmethod
    def exponential(cls, delay: timedelta | float = 1.0, max_attempts: int = 3, **more: object) -> Self:
        """A wait that multiplies by `factor` with each attempt."""
        return cls._of(RetryKind.EXPONENTIAL, delay, max_attempts, more)

    @classmethod
    def _of(cls, kind: RetryKind, delay: timedelta | float, max_attempts: int, more: dict[str, object]) -> Self:
        span = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        return replace(cls(kind=kind, max_attempts=max_attempts, delay_seconds=span), **more)

    def forbids(self, *classes: str) -> bool:
        """True when an error that is of these classes (`module.Name`) is never tried again."""
        return any(name in self.never or name.rpartition(".")[2] in self.never for name in classes)

    def wait_after(self, attempt: int, rng: random.Random) -> timedelta:
        """How long to wait after `attempt` (from 1) has errored. Full jitter: anything from zero to the whole wait."""
        whole = min(self.cap_seconds, self._growth(attempt))
        return seconds(rng.uniform(0, whole) if self.jitter else whole)

    def _growth(self, attempt: int) -> float:
        match self.kind:
            case RetryKind.NONE:
                return 0.0
            case RetryKind.FIXED:
                return self.delay_seconds
            case RetryKind.LINEAR:
                return self.delay_seconds * attempt
            case RetryKind.EXPONENTIAL:
                # Beyond 2^64 the cap applies anyway; a larger exponent would overflow.
                return self.delay_seconds * self.factor ** min(attempt - 1, 64)


def exception_names(kind: type[BaseException]) -> tuple[str, ...]:
    """The names of the classes that an exception of this class is of: its own first, `object` left out."""
    return tuple(_name_of(one) for one in kind.__mro__[:-1])


def _names_of(never: object) -> tuple[str, ...]:
    given = never if isinstance(never, Iterable) and not isinstance(never, str) else (never,)
    return tuple(one if isinstance(one, str) else _name_of(_exception(one)) for one in given)


def _exception(one: object) -> type[BaseException]:
    if isinstance(one, type) and issubclass(one, BaseException):
        return one
    raise Invalid(f"never: name exception classes, such as ValueError or 'app.errors.Gone', not {one!r}")


def _name_of(kind: type) -> str:
    return f"{readable(kind.__module__)}.{readable(kind.__qualname__)}"


NAMED: dict[RetryKind, Retry] = {
    RetryKind.NONE: Retry.none(),
    RetryKind.FIXED: Retry.fixed(),
    RetryKind.LINEAR: Retry.linear(),
    RetryKind.EXPONENTIAL: Retry.exponential(),
}
"""What a bare name on the wire (`"retry_policy": "fixed"`) stands for."""
