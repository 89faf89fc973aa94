"""What direct workers have counted reaches the process that started them, once."""

from pathlib import Path

from penstock.engine.meters import Meters
from penstock.model.job import Loss
from penstock.model.lifecycle import Move, State
from penstock.model.wire.jobs import Refusal
from penstock.runtime.tallies import Collection, Contribution


def busy_worker() -> Meters:
    meters = Meters()
    meters.moves["mail", Move.SETTLE, State.SUCCEEDED] += 3
    meters.note_run("mail", 0.2)
    meters.note_refusals([Refusal("j", 1, Loss.LOST)])  # type: ignore[arg-type]
    return meters


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_what_workers_counted_is_added_up_and_counted_once(tmp_path: Path) -> None:
    server, workers = Meters(), [busy_worker(), busy_worker()]
    contributions = [Contribution(meters, tmp_path) for meters in workers]
    collection = Collection(server, tmp_path)
    for contribution in contributions:
        await contribution.step()
        await contribution.step()
    await collection.step()
    await collection.step()
    assert server.moves == {("mail", Move.SETTLE, State.SUCCEEDED): 6}
    assert (sum(server.runs["mail"].counts), server.runs["mail"].seconds) == (2, 0.4)
    assert server.refusals == {Loss.LOST: 2}
    workers[0].moves["mail", Move.SETTLE, State.FAILED] += 1
    contributions[0].leave()
    await collection.step()
    assert server.moves["mail", Move.SETTLE, State.FAILED] == 1
    assert files_in(tmp_path) == []


async def test_what_cannot_be_read_or_told_stops_nothing(tmp_path: Path) -> None:
    server = Meters()
    (tmp_path / "a.tally").write_bytes(b'{"moves":[["mail","settle","succeeded",1]],"runs":{"mail":[[1],0.1]}}')
    (tmp_path / "b.tally").write_bytes(b"half")
    await Collection(server, tmp_path).step()
    assert (dict(server.moves), files_in(tmp_path)) == ({}, [])
    Contribution(busy_worker(), tmp_path / "gone").leave()
