"""What the load asks for: a list of requests that depends on nothing but a seed."""

import random
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

LARGE_BYTES = 80_000
"""Above `limits.inline_bytes`, so that these params go to the object store."""
BATCH = 50


class Kind(StrEnum):
    """`lone` has no key and is asked for once; all others carry a key and are asked for until they are answered."""

    QUICK = "quick"
    LONE = "lone"
    LINGER = "linger"
    FLAKY = "flaky"
    WRITE = "write"
    LARGE = "large"
    LATER = "later"
    CANCEL = "cancel"


SHARES = {
    Kind.QUICK: 62,
    Kind.LONE: 10,
    Kind.LINGER: 6,
    Kind.FLAKY: 6,
    Kind.WRITE: 4,
    Kind.LARGE: 2,
    Kind.LATER: 6,
    Kind.CANCEL: 4,
}
"""Of every hundred jobs that are submitted singly."""
BATCHES = 3
"""Of every hundred requests; each brings BATCH jobs."""

TYPES = {
    Kind.LINGER: "linger",
    Kind.FLAKY: "flaky",
    Kind.WRITE: "write",
}


class Wish(Struct, frozen=True):
    """One job that a client wants. A `delay` makes it due later."""

    n: int
    kind: Kind
    delay: float = 0.0

    @property
    def keyed(self) -> bool:
        return self.kind is not Kind.LONE

    @property
    def key(self) -> str:
        return f"order-{self.n}"

    @property
    def type(self) -> str:
        return TYPES.get(self.kind, "quick")

    @property
    def params(self) -> dict[str, object]:
        return {"n": self.n, "text": "x" * LARGE_BYTES} if self.kind is Kind.LARGE else {"n": self.n}

    def body(self) -> dict[str, object]:
        body: dict[str, object] = {"type": self.type, "params": self.params}
        if self.delay:
            body["delay_seconds"] = self.delay
        return body


Request = tuple[Wish, ...]
"""Several wishes go as one batch."""


def requests(rng: random.Random) -> Iterator[Request]:
    """Requests without end; wishes are numbered from 0."""
    n = 0
    while True:
        size = BATCH if rng.randrange(100) < BATCHES else 1
        yield tuple(_wish(number, rng, alone=size == 1) for number in range(n, n + size))
        n += size


def _wish(n: int, rng: random.Random, *, alone: bool) -> Wish:
    kind = rng.choices(list(SHARES), weights=list(SHARES.values()))[0] if alone else Kind.QUICK
    return Wish(n, kind, _delay(kind, rng))


def _delay(kind: Kind, rng: random.Random) -> float:
    match kind:
        case Kind.LATER:
            return round(rng.uniform(1, 8), 3)
        case Kind.CANCEL:
            # Some are cancelled while they wait, some as they begin.
            return rng.choice([0.0, 0.05, 3.0])
        case _:
            return 0.0
