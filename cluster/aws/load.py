"""What the load on AWS asks for, and the clients that ask: plain HTTP requests through API Gateway."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from cluster.board import Board
from cluster.caller import Answer, Caller
from cluster.clients import Client, Supply
from cluster.mix import LARGE_BYTES, Kind, Request, Wish

BATCH = 20
BATCHES = 5
"""Of every hundred requests; each brings BATCH jobs."""
SHARES = {
    Kind.QUICK: 40,
    Kind.LINGER: 25,
    Kind.FLAKY: 8,
    Kind.WRITE: 7,
    Kind.LARGE: 3,
    Kind.LATER: 9,
    Kind.CANCEL: 8,
}
"""Of every hundred jobs that are submitted singly."""


class AwsWish(Wish, frozen=True):
    """One job that a client wants, of one of the two types."""

    @property
    def type(self) -> str:
        return "thumbnail" if self.kind in {Kind.QUICK, Kind.WRITE, Kind.LARGE} else "report"

    @property
    def params(self) -> dict[str, object]:
        match self.kind:
            case Kind.LARGE:
                return {"n": self.n, "text": "x" * LARGE_BYTES}
            case Kind.WRITE:
                return {"n": self.n, "file": True}
            case Kind.FLAKY:
                return {"n": self.n, "flaky": True}
            case _:
                return {"n": self.n}


def orders(rng: random.Random) -> Iterator[Request]:
    """Requests without end; wishes are numbered from 0."""
    n = 0
    while True:
        size = BATCH if rng.randrange(100) < BATCHES else 1
        kinds = rng.choices(list(SHARES), weights=list(SHARES.values()), k=1) if size == 1 else [Kind.QUICK] * size
        yield tuple(AwsWish(n + number, kind, _delay(kind, rng)) for number, kind in enumerate(kinds))
        n += size


def _delay(kind: Kind, rng: random.Random) -> float:
    match kind:
        case Kind.LATER:
            return round(rng.uniform(1, 8), 3)
        case Kind.CANCEL:
            # Some are cancelled while they wait, some as they begin.
            return rng.choice([0.0, 3.0])
        case _:
            return 0.0


class GatewayCaller(Caller):
    """Calls an API by its host name, with a key."""

    def __init__(self, port: int, host: str, key: str) -> None:
        super().__init__(port)
        self._own = {"Host": host, "Authorization": f"Bearer {key}"}

    def call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        return super().call(method, path, body, {**self._own, **(headers or {})})


class GatewayClient(Client):
    """A client of the load behind API Gateway."""

    def __init__(self, name: str, caller: GatewayCaller, supply: Supply, board: Board, folder: Path) -> None:
        super().__init__(name, 0, supply, board, folder)
        self._caller = caller
