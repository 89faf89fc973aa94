"""Every setting, with its default and what it means. The reference page is checked against this file."""

from typing import Annotated

from msgspec import Meta, Struct

KIB = 1024
MIB = 1024 * KIB


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the server listens and keeps its data."""

    host: Annotated[str, Meta(description="Address to listen on. Only loopback addresses need no API key.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(description="Port to listen on; 0 takes a free one.", ge=0, le=65535)] = 7373
    data: Annotated[str, Meta(description="Folder for the database and the objects; made if it is missing.")] = (
        ".penstock"
    )
    allow_unknown_types: Annotated[
        bool, Meta(description="Accept jobs of types that no worker has declared yet; they wait until one does.")
    ] = False
    scheduler: Annotated[
        bool, Meta(description="Run a scheduler in the server; without it schedules wait for `penstock scheduler`.")
    ] = True


class TimingSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long things may take. The defaults suit nearly everyone."""

    lease_seconds: Annotated[
        float, Meta(description="A worker silent for this long loses its jobs to others.", ge=1)
    ] = 15.0
    heartbeat_seconds: Annotated[float, Meta(description="How often a worker renews its leases.", gt=0)] = 5.0
    reap_seconds: Annotated[
        float, Meta(description="How often lost leases, expired jobs and lapsed tickets are sought.", gt=0)
    ] = 2.0
    ticket_seconds: Annotated[float, Meta(description="A ticket not claimed in this time is posted again.", gt=0)] = (
        30.0
    )
    window_seconds: Annotated[
        float, Meta(description="How many seconds of drain the broker holds per queue.", gt=0)
    ] = 2.0
    window_jobs: Annotated[
        int, Meta(description="The least number of tickets a queue's window has room for.", ge=1)
    ] = 2000
    slot_seconds: Annotated[
        float, Meta(description="How far ahead a scheduler reads what falls due.", ge=0.1, le=3600)
    ] = 1.0
    retries_per_second: Annotated[
        float, Meta(description="Most retries of one queue that one server lets fall due in a second.", gt=0)
    ] = 100.0


class LimitSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a request may hold; more is refused with 413 or 422."""

    body_bytes: Annotated[int, Meta(description="Largest JSON body of a request.", ge=KIB)] = 16 * MIB
    batch_jobs: Annotated[int, Meta(description="Most jobs in one bulk submit.", ge=1)] = 10_000
    depth: Annotated[int, Meta(description="Deepest nesting of a JSON body.", ge=4, le=200)] = 64
    page_jobs: Annotated[int, Meta(description="Most jobs on one page of a list.", ge=1)] = 500
    wait_seconds: Annotated[
        float, Meta(description="Longest time a request may wait for a job to end or for work.", ge=0)
    ] = 60.0
    inline_bytes: Annotated[int, Meta(description="Params and results above this go to the object store.", ge=0)] = (
        64 * KIB
    )
    file_bytes: Annotated[int, Meta(description="Largest input or output file.", ge=1)] = 5 * KIB * MIB
    log_bytes: Annotated[int, Meta(description="Most log text kept per job.", ge=0)] = 256 * KIB


class RetentionSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long ended jobs stay readable."""

    succeeded_seconds: Annotated[float, Meta(description="Jobs that succeeded.", ge=0)] = 7 * 86_400.0
    failed_seconds: Annotated[float, Meta(description="Jobs that failed, were cancelled or expired.", ge=0)] = (
        30 * 86_400.0
    )
    upload_seconds: Annotated[
        float, Meta(description="Uploads that no job links to, and objects of lost attempts.", ge=60)
    ] = 86_400.0


class WorkerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a worker runs jobs."""

    url: Annotated[str, Meta(description="Server a worker, the SDK and the command line talk to.")] = (
        "http://127.0.0.1:7373"
    )
    executors: Annotated[int, Meta(description="Processes that run handlers; 0 means one per core.", ge=0)] = 0
    capacity: Annotated[int, Meta(description="Jobs run at once by one worker; 0 means 16 per executor.", ge=0)] = 0
    queues: Annotated[tuple[str, ...], Meta(description="Take jobs of these queues only; empty means all.")] = ()
    grace_seconds: Annotated[
        float,
        Meta(
            description="How long a job that was cancelled, timed out or must yield may take to stop by itself.", ge=0
        ),
    ] = 5.0
    drain_seconds: Annotated[float, Meta(description="How long a stopping worker lets running jobs finish.", ge=0)] = (
        30.0
    )
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


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole tree, one section per concern."""

    server: ServerSettings = ServerSettings()
    timing: TimingSettings = TimingSettings()
    limits: LimitSettings = LimitSettings()
    retention: RetentionSettings = RetentionSettings()
    worker: WorkerSettings = WorkerSettings()
