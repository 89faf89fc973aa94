"""Measure Penstock beside its peers in one interleaved run.

run.py --quick                                     does everything work? its numbers mean nothing
run.py                                             the default peers, three repetitions
run.py --only huey-sqlite,penstock --parts drain   two systems, one measurement
run.py --only penstock --against ../before --reps 5 this checkout beside another one
run.py --all --parts drain,growth --json out.json  everything, and the raw numbers in a file
"""

import argparse
import contextlib
import fcntl
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import peer_servers
from calibration import Calibration, calibrate
from catalog import PEERS, Peer
from environments import Unavailable, command_of
from places import Places, prepare
from processes import StepFailed, stop_on_signals
from report import Sample, markdown, progress
from startlog import StartLog
from steps import NORMAL, PARTS, QUICK, Amounts, Bench

DEFAULT_PARTS = "enqueue,callers,bulk,drain,latency"


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for."""

    peers: tuple[Peer, ...]
    parts: tuple[str, ...]
    repetitions: int
    amounts: Amounts
    json: Path | None


@dataclass(frozen=True, slots=True)
class Found:
    """What has been measured so far; filled step by step, so that an interrupted run still has a report."""

    samples: list[Sample]
    calibrations: list[Calibration]


def main() -> int:
    stop_on_signals()
    options, places, found = _options(), prepare(), Found([], [])
    code = 0
    try:
        with _alone(places):
            _measure(options, places, found)
    except KeyboardInterrupt:
        print("\nstopped; all processes have ended", flush=True)
        code = 130
    finally:
        StartLog(places.started).remove()
    _write(options, found)
    return code or int(not found.samples or any(not s.numbers and s.notes for s in found.samples))


def _measure(options: Options, places: Places, found: Found) -> None:
    with contextlib.ExitStack() as running:
        benches = _set_up(options.peers, places, running)
        for repetition in range(1, options.repetitions + 1) if benches else ():
            found.calibrations.append(calibrate(places.data))
            now = found.calibrations[-1]
            print(f"repetition {repetition}: fdatasync {now.fdatasync_us:.0f} µs, CPU loop {now.cpu_ms:.0f} ms")
            for sample in _repetition(repetition, benches, options):
                found.samples.append(sample)
                print(progress(sample), flush=True)


def _repetition(number: int, benches: Sequence[Bench], options: Options) -> Iterator[Sample]:
    """Part by part, and within a part peer by peer: what is compared was measured within seconds."""
    for part in options.parts:
        for bench in benches:
            try:
                outcome = PARTS[part](bench, options.amounts)
            except (StepFailed, Unavailable) as failure:
                yield Sample(number, part, bench.peer.name, {}, (f"failed: {failure}",))
            else:
                yield Sample(number, part, bench.peer.name, outcome.numbers, outcome.notes)


def _set_up(peers: Sequence[Peer], places: Places, running: contextlib.ExitStack) -> list[Bench]:
    """Install and start what the peers need; one that cannot run here is left out with a message."""
    benches: list[Bench] = []
    for peer in peers:
        try:
            command = command_of(peer, places)
            for server in peer.servers:
                if not any(server in bench.peer.servers for bench in benches):
                    places = running.enter_context(peer_servers.started(server, places))
        except (Unavailable, StepFailed) as reason:
            print(f"skipping {peer.name}: {reason}", flush=True)
        else:
            source = peer.checkout / "bench" if peer.checkout else places.source
            benches.append(Bench(peer, command, replace(places, source=source)))
    return benches


@contextlib.contextmanager
def _alone(places: Places) -> Iterator[None]:
    """Two runs in one folder would share its data, and two on one machine would measure each other."""
    with (places.home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another bench is running in {places.home}") from None
        yield


def _write(options: Options, found: Found) -> None:
    if found.samples:
        print("\n" + markdown(found.samples, found.calibrations), flush=True)
    if options.json:
        options.json.write_text(json.dumps(_document(found), indent=2) + "\n")


def _document(found: Found) -> dict[str, object]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"platform": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
        "calibrations": [asdict(calibration) for calibration in found.calibrations],
        "samples": [asdict(sample) for sample in found.samples],
    }


def _options() -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="A,B", help=f"these systems, of {', '.join(PEERS)}")
    parser.add_argument("--all", action="store_true", help="also those that are not measured by default")
    parser.add_argument("--parts", default=DEFAULT_PARTS, help=f"of {', '.join(PARTS)} (default: {DEFAULT_PARTS})")
    parser.add_argument("--reps", type=int, default=3, help="repetitions (default: 3)")
    parser.add_argument("--jobs", type=int, help="jobs in each enqueue, bulk and drain step (default: by system)")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="also Penstock as this checkout has it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples to this file")
    parser.add_argument("--quick", action="store_true", help="small amounts and one repetition, to see that it works")
    given = parser.parse_args()
    amounts = QUICK if given.quick else NORMAL
    default = [peer.name for peer in PEERS.values() if given.all or peer.by_default]
    peers = _chosen(parser, given.only.split(",") if given.only else default, PEERS)
    parts = _chosen(parser, given.parts.split(","), PARTS)
    return Options(
        peers=tuple(_with_checkout([PEERS[name] for name in peers], given.against)),
        parts=tuple(parts),
        repetitions=1 if given.quick else given.reps,
        amounts=replace(amounts, jobs=given.jobs) if given.jobs else amounts,
        json=given.json,
    )


def _with_checkout(peers: Sequence[Peer], checkout: Path | None) -> Iterator[Peer]:
    """Each peer, and after each that is Penstock the same of the other checkout."""
    for peer in peers:
        yield peer
        if checkout is not None and peer.own_server:
            yield peer.of_checkout(checkout.resolve())


def _chosen(parser: argparse.ArgumentParser, wanted: list[str], known: Mapping[str, object]) -> list[str]:
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"no {', '.join(unknown)}; there are: {', '.join(known)}")
    return wanted


if __name__ == "__main__":
    sys.exit(main())
