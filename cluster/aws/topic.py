"""The subscriber of the topic: a queue that collects every change of a job, and the judge of what came."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from cluster.checker import Found

QUEUE = "changes-of-the-run"


class Told(Struct, frozen=True):
    """What was wrong with the changes on the topic: `missed` names versions that never came, `unknown` those of no job.

    `changes` are different ones; `repeated` counts those that had come before, which is allowed.
    """

    changes: int
    repeated: int
    missed: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def good(self) -> bool:
        return bool(self.changes) and not (self.missed or self.unknown)


class Subscriber(threading.Thread):
    """Takes messages from its queue until it is stopped."""

    def __init__(self, queues: Any, topics: Any, topic: str) -> None:
        super().__init__(daemon=True)
        self._queues = queues
        self._url = queues.create_queue(QueueName=QUEUE)["QueueUrl"]
        self._subscribe(topics, topic)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._seen: Counter[tuple[str, int]] = Counter()
        self._arrivals: list[float] = []

    def _subscribe(self, topics: Any, topic: str) -> None:
        asked = self._queues.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        queue = asked["Attributes"]["QueueArn"]
        allowed = {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": queue,
            "Condition": {"ArnEquals": {"aws:SourceArn": topic}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        self._queues.set_queue_attributes(QueueUrl=self._url, Attributes={"Policy": policy})
        topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes={"RawMessageDelivery": "true"})

    def run(self) -> None:
        while not self._stopped.is_set():
            self._take()

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def versions(self) -> Mapping[tuple[str, int], int]:
        """How often each version of each job has come."""
        with self._lock:
            return Counter(self._seen)

    def first_after(self, moment: float) -> float | None:
        """When the first message came after this moment of the monotonic clock."""
        with self._lock:
            return next((at for at in self._arrivals if at > moment), None)

    def _take(self) -> None:
        got = self._queues.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        messages = got.get("Messages", [])
        with self._lock:
            self._seen.update(change_of(json.loads(message["Body"])) for message in messages)
            self._arrivals += [time.monotonic()] * bool(messages)
        for message in messages:
            self._queues.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])


def change_of(event: Mapping[str, Any]) -> tuple[str, int]:
    """The job and the version that a CloudEvent tells of."""
    return str(event["subject"]), int(event["sequence"])


def judge_changes(seen: Mapping[tuple[str, int], int], jobs: Iterable[Found]) -> Told:
    """What is wrong between the topic and the jobs as the API shows them; nothing, if every change was told."""
    known = {job.id: job for job in jobs}
    unknown = [f"version {version} of {job}" for job, version in seen if not _is_known(known.get(job), version)]
    return Told(len(seen), sum(seen.values()) - len(seen), tuple(_missed(seen, known)), tuple(unknown))


def _is_known(job: Found | None, version: int) -> bool:
    return job is not None and version <= job.version


def _missed(seen: Mapping[tuple[str, int], int], known: Mapping[str, Found]) -> Iterator[str]:
    for job in known.values():
        missed = [version for version in range(1, job.version + 1) if (job.id, version) not in seen]
        if missed:
            yield f"versions {missed} of {job.version} of {job.id}"
