"""Every setting, with its default and what it means. The reference page is checked against this file."""

import ipaddress
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from penstock.config.event_settings import EventSettings, WebhookSettings
from penstock.config.fleet_settings import EcsSettings, FleetSettings, TaskTable
from penstock.config.function_settings import FunctionSettings
from penstock.config.log_settings import LogSettings, MetricsSettings
from penstock.config.tables import SubscriptionTable
from penstock.model.ids import SERIES_MAX
from penstock.model.names import whole

KIB = 1024
MIB = 1024 * KIB


HostName = Annotated[str, whole(r"(?:[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?)", max_length=253)]


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the server listens and keeps its data."""

    host: Annotated[str, Meta(description="Address to listen on. Only loopback addresses need no API key.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(description="Port to listen on; 0 takes a free one.", ge=0, le=65535)] = 7373
    hosts: Annotated[
        tuple[HostName, ...],
        Meta(
            description="Names by which a server that needs no API key may be asked, besides localhost and loopback "
            "addresses; without ports."
        ),
    ] = ()
    connections: Annotated[
        int, Meta(description="Most connections that one process has open at a time; more are answered with 503.", ge=1)
    ] = 1000
    data: Annotated[str, Meta(description="Folder for the database and the objects; made if it is missing.")] = (
        ".penstock"
    )
    allow_unknown_types: Annotated[
        bool, Meta(description="Accept jobs of types that no worker has declared yet; they wait until one does.")
    ] = False
    scheduler: Annotated[
        bool, Meta(description="Run a scheduler in the server; without it schedules wait for `penstock scheduler`.")
    ] = True
    keys: Annotated[
        Literal["auto", "required"],
        Meta(
            description="When requests need an API key: `auto` on any address but loopback, `required` always; "
            "choose that behind a proxy."
        ),
    ] = "auto"

    @property
    def needs_keys(self) -> bool:
        """Whether a request without an API key is refused."""
        return self.keys == "required" or not is_loopback(self.host)


class StoreSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where jobs are kept. Without any of these: one SQLite file in the data folder."""

    url: Annotated[
        str,
        Meta(description="One shard: `postgresql://…` or `dynamodb://TABLE`; empty keeps jobs in the data folder."),
    ] = ""
    shards: Annotated[
        tuple[str, ...],
        Meta(description="Several shards, each as `NUMBER=URL`; the numbers stay with their databases for ever."),
    ] = ()
    migrate: Annotated[
        bool, Meta(description="Bring a shard's tables up to date at start; otherwise `penstock db migrate` does.")
    ] = True
    connections: Annotated[
        int, Meta(description="Most connections that one process has to each PostgreSQL shard.", ge=1)
    ] = 10
    deadline_seconds: Annotated[
        float, Meta(description="A shard that does not answer a call in this time is unavailable.", gt=0)
    ] = 5.0


class BrokerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where tickets lie. Losing them loses no job."""

    url: Annotated[str, Meta(description="`redis://…` or `sqs://PREFIX`; empty: the server's memory.")] = ""
    prefix: Annotated[
        str,
        whole(
            "[a-z0-9-]+",
            max_length=128,
            description="What the keys in Redis begin with, where several systems share one.",
        ),
    ] = "penstock"
    deadline_seconds: Annotated[
        float, Meta(description="A broker that does not answer a call in this time is left alone. 5 with SQS.", gt=0)
    ] = 1.0
    create: Annotated[bool, Meta(description="Create missing SQS queues, and the SNS topic of signals.")] = True
    signals: Annotated[Literal["sns", "none"], Meta(description="What carries signals beside SQS.")] = "sns"


class ObjectSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where inputs, outputs and large values lie. Credentials of S3 come from the usual AWS_* variables."""

    url: Annotated[str, Meta(description="`s3://bucket/prefix`; empty keeps objects in the data folder.")] = ""
    endpoint: Annotated[str, Meta(description="Address of an S3-compatible store; empty means AWS.")] = ""
    public_endpoint: Annotated[
        str, Meta(description="The same store as clients and workers reach it; empty means by the same address.")
    ] = ""
    region: Annotated[str, Meta(description="Region of the bucket.")] = "us-east-1"
    direct: Annotated[
        bool, Meta(description="Let clients and workers move files to and from S3 by presigned URLs.")
    ] = True
    link_seconds: Annotated[float, Meta(description="How long a presigned URL is good for.", ge=1, le=604_800)] = 900.0


class TimingSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long things may take. The defaults suit nearly every installation."""

    lease_seconds: Annotated[
        float, Meta(description="A worker silent for this long loses its jobs to others.", ge=1)
    ] = 15.0
    heartbeat_seconds: Annotated[float, Meta(description="How often a worker renews its leases.", gt=0)] = 5.0
    reap_seconds: Annotated[
        float, Meta(description="How often lost leases, expired jobs and lapsed tickets are sought.", gt=0)
    ] = 2.0
    ticket_seconds: Annotated[
        float,
        Meta(
            description="A ticket taken from the broker, or lost, and not claimed in this time is posted again.", gt=0
        ),
    ] = 5.0
    redelivered_ticket_seconds: Annotated[
        float, Meta(description="The same with SQS, which gives taken tickets again itself: for lost ones.", gt=0)
    ] = 300.0
    window_jobs: Annotated[
        int,
        Meta(description="How many tickets of each type in a queue the broker holds; more wait in the store.", ge=1),
    ] = 2000
    slot_seconds: Annotated[
        float, Meta(description="How far ahead a scheduler reads what falls due.", ge=0.1, le=3600)
    ] = 1.0
    retries_per_second: Annotated[
        float, Meta(description="Most retries of one queue that one server lets fall due in a second.", gt=0)
    ] = 100.0
    dispatch_seconds: Annotated[
        float, Meta(description="How late a job gets its ticket whose signal was lost. 5 on AWS.", gt=0)
    ] = 1.0
    observe_seconds: Annotated[
        float, Meta(description="How often an autoscaler looks when nothing happens. 5 on AWS.", gt=0)
    ] = 1.0
    catalog_seconds: Annotated[
        float, Meta(description="How late changes of types, pauses, keys are seen, at most. 5 on AWS.", gt=0)
    ] = 1.0
    depths_seconds: Annotated[
        float, Meta(description="How long the depths of a shared broker are remembered. 2 on AWS.", ge=0)
    ] = 0.05


class LimitSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a request may hold; more is refused with 413 or 422."""

    body_bytes: Annotated[
        int, Meta(description="Largest JSON body of a request. Results end 64 KiB below it.", ge=KIB)
    ] = 16 * MIB
    batch_jobs: Annotated[int, Meta(description="Most jobs in one bulk submit.", ge=1, le=SERIES_MAX)] = 10_000
    depth: Annotated[int, Meta(description="Deepest nesting of a JSON body.", ge=4, le=200)] = 64
    values: Annotated[
        int, Meta(description="Most strings, lists and objects in a JSON body; a key is a string too.", ge=1000)
    ] = 250_000
    page_jobs: Annotated[int, Meta(description="Most jobs on one page of a list.", ge=1)] = 500
    wait_seconds: Annotated[
        float, Meta(description="Longest time a request may wait for a job to end or for work.", ge=0)
    ] = 60.0
    inline_bytes: Annotated[int, Meta(description="Params and results above this go to the object store.", ge=0)] = (
        64 * KIB
    )
    file_bytes: Annotated[int, Meta(description="Largest input or output file.", ge=1)] = 5 * KIB * MIB
    log_bytes: Annotated[int, Meta(description="Most log text kept per job.", ge=0)] = 256 * KIB
    streams: Annotated[int, Meta(description="Most streams of events that one process serves at once.", ge=0)] = 1_000

    @property
    def result_bytes(self) -> int:
        """The longest result: with what a worker says beside it, it fits into the body of a request."""
        return max(self.body_bytes - 64 * KIB, self.body_bytes // 2)


class RetentionSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long ended jobs stay readable, and what else is removed after a time."""

    succeeded_seconds: Annotated[float, Meta(description="Jobs that succeeded.", ge=0)] = 7 * 86_400.0
    failed_seconds: Annotated[float, Meta(description="Jobs that failed, were cancelled or expired.", ge=0)] = (
        30 * 86_400.0
    )
    upload_seconds: Annotated[
        float, Meta(description="Uploads that no job links to, and objects of lost attempts.", ge=60)
    ] = 86_400.0
    worker_seconds: Annotated[
        float,
        Meta(description="Workers that were lost: how long they are listed, after they were last heard from.", ge=60),
    ] = 86_400.0
    events_seconds: Annotated[
        float, Meta(description="The journal of state changes and the delivery logs of subscriptions.", ge=60)
    ] = 7 * 86_400.0
    history_seconds: Annotated[float, Meta(description="The history of counts and times.", ge=60)] = 90 * 86_400.0


class WorkerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a worker runs jobs."""

    url: Annotated[str, Meta(description="Server a worker, the SDK in its handlers and the command line talk to.")] = (
        "http://127.0.0.1:7373"
    )
    key: Annotated[
        str, Meta(description="API key for that server. Keep it out of files that others can read: set PENSTOCK_KEY.")
    ] = ""
    direct: Annotated[
        bool, Meta(description="Reach store, broker and objects directly instead of through a server's HTTP.")
    ] = False
    deployed_at: Annotated[
        str,
        Meta(
            description="When a worker's code was deployed, such as `2026-01-31T12:00:00Z`: of two declarations of a "
            "job type the later deployed counts. Empty: when the worker started."
        ),
    ] = ""
    app: Annotated[
        str,
        Meta(
            description="Name of a worker's app in the registry: an autoscaler acts for the job types of its own app. "
            "Empty: MODULE:APP as it is given."
        ),
    ] = ""
    template: Annotated[
        bool, Meta(description="Fork workers and executors from a process that has the app imported, where it is safe.")
    ] = True
    executors: Annotated[int, Meta(description="Processes that run handlers; 0 means one per core.", ge=0)] = 0
    capacity: Annotated[int, Meta(description="Jobs run at once by one worker; 0 means 16 per executor.", ge=0)] = 0
    queues: Annotated[tuple[str, ...], Meta(description="Take jobs of these queues only; empty means all.")] = ()
    except_queues: Annotated[
        tuple[str, ...], Meta(description="Take no jobs of these queues; for the default fleet, those of the others.")
    ] = ()
    grace_seconds: Annotated[
        float,
        Meta(
            description="How long a job that was cancelled, timed out or must yield may take to stop by itself.", ge=0
        ),
    ] = 5.0
    drain_seconds: Annotated[float, Meta(description="How long a stopping worker lets running jobs finish.", ge=0)] = (
        30.0
    )
    task_protection: Annotated[
        bool,
        Meta(
            description="In a task of an ECS service: protect the task from scale-in while jobs run. Needs "
            "`ecs:UpdateTaskProtection` in the task's role; elsewhere it does nothing."
        ),
    ] = False
    recycle_jobs: Annotated[int, Meta(description="Replace an executor after this many jobs; 0 means never.", ge=0)] = 0
    recycle_mib: Annotated[
        int, Meta(description="Replace an executor, once idle, above this memory; 0 means never.", ge=0)
    ] = 0
    memory_mib: Annotated[
        int,
        Meta(
            description="Kill an executor above this memory; 0 means the machine's memory shared by the executors.",
            ge=0,
        ),
    ] = 0

    @property
    def deployed(self) -> datetime | None:
        """When its code was deployed, if that is said; ValueError if it is no instant."""
        if not self.deployed_at:
            return None
        at = datetime.fromisoformat(self.deployed_at)
        if at.tzinfo is None:
            raise ValueError(f"{self.deployed_at!r} has no offset")
        return at


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there; a name other than localhost may be any."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole tree, one section per concern.

    `fleets` holds the tables `[fleets.NAME]` as they were written, `subscriptions` those `[subscriptions.NAME]`,
    `tasks` those `[tasks.NAME]`.
    """

    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    broker: BrokerSettings = BrokerSettings()
    objects: ObjectSettings = ObjectSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: LogSettings = LogSettings()
    timing: TimingSettings = TimingSettings()
    limits: LimitSettings = LimitSettings()
    retention: RetentionSettings = RetentionSettings()
    events: EventSettings = EventSettings()
    webhooks: WebhookSettings = WebhookSettings()
    worker: WorkerSettings = WorkerSettings()
    fleet: FleetSettings = FleetSettings()
    ecs: EcsSettings = EcsSettings()
    functions: FunctionSettings = FunctionSettings()
    fleets: Mapping[str, Mapping[str, object]] = {}
    subscriptions: Mapping[str, SubscriptionTable] = {}
    tasks: Mapping[str, TaskTable] = {}
