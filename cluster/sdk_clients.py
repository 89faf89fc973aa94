"""Clients that submit through the SDK as a user's program does: without keys of their own, and with little patience."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cluster.board import Board
from cluster.clients import FAULT, Client, Supply
from cluster.mix import Request, Wish
from cluster.records import Call, Phase
from penstock import Client as Sdk
from penstock.client.http import error_of
from penstock.client.options import JobSpec
from penstock.model.errors import PenstockError, Unavailable
from penstock.model.wire.jobs import BatchAnswer

PATIENCE_SECONDS = 5.0
"""What a web request can wait: less than a shard is dead for, so that a submit that waits for it fails."""

_BLAMED = re.compile(r"\bshard (\d+)\b")


class SdkClient(Client):
    """Makes each request once. The SDK repeats what it may, and what it gives up is written down as failed."""

    def __init__(self, name: str, port: int, supply: Supply, board: Board, folder: Path) -> None:
        super().__init__(name, port, supply, board, folder)
        self._sdk = Sdk(f"http://127.0.0.1:{port}", patience=PATIENCE_SECONDS)
        self._requests = 0

    def _submit(self, wishes: Request) -> None:
        self._requests += 1
        request = f"{self.name}/{self._requests}"
        for wish in wishes:
            self._write(Phase.INVOKE, Call.SUBMIT, wish.n, delay=wish.delay, request=request)
        try:
            items = self._send(wishes)
        except PenstockError as error:
            self._fail(wishes, request, error)
            return
        self._board.count_sdk_request()
        for wish, item in zip(wishes, items, strict=True):
            self._acknowledge(wish, item, request)

    def _send(self, wishes: Request) -> Sequence[dict[str, object]]:
        """The accepted jobs, in order."""
        specs = [_spec(wish) for wish in wishes]
        if len(specs) == 1:
            return [msgspec.to_builtins(self._sdk.submit(**specs[0]))]
        return [_accepted(answer) for answer in self._sdk.submit_many(specs)]

    def _fail(self, wishes: Request, request: str, error: PenstockError) -> None:
        blamed = _BLAMED.search(error.message)
        shard = int(blamed[1]) if blamed else None
        for wish in wishes:
            self._write(Phase.INFO, Call.SUBMIT, wish.n, request=request, shard=shard)
        if not isinstance(error, Unavailable) or error.details.get("status") == FAULT:
            status = error.details.get("status", "no status")
            self._board.refuse(
                f"SDK submit of order {wishes[0].n} was answered {status}, {error.code}: {error.message}"
            )


def _spec(wish: Wish) -> JobSpec:
    return {"type": wish.type, "params": wish.params, "delay": wish.delay or None}


def _accepted(answer: BatchAnswer) -> dict[str, object]:
    if answer.problem is not None:
        raise error_of(answer.problem)
    return {"id": answer.id, "state": answer.state}
