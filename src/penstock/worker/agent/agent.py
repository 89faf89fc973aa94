"""The worker's own process: claims, renews and settles. It never imports or runs user code; its executors do."""

import asyncio
import logging
import os
import random
import re
import signal
import socket
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from penstock import __version__
from penstock.config.settings import Settings
from penstock.loop import run_forever
from penstock.model.clock import Clock, seconds, within
from penstock.model.declarations import signature_of
from penstock.model.errors import Forbidden, Invalid, InvalidSetting, PenstockError, TooLarge, Unavailable
from penstock.model.ports import WorkerApi
from penstock.model.wire.jobs import JoinResponse
from penstock.model.wire.schedules import ScheduleRequest
from penstock.model.workers import LONG_AGO_SECONDS, DrainRequest, HandlerKind, Worker, WorkerState, WorkRequest
from penstock.worker.agent.attempt import LeaseTerms
from penstock.worker.agent.attempts import Attempts, Rules
from penstock.worker.agent.claimer import Claimer, Declined
from penstock.worker.agent.drain import Drain
from penstock.worker.agent.executor_process import MIB, limit_bytes
from penstock.worker.agent.executors import LOAD_SECONDS, Executors, Plan
from penstock.worker.agent.files import remove
from penstock.worker.agent.heartbeat import Heartbeat
from penstock.worker.agent.logs import Logs
from penstock.worker.agent.outage import LONGEST_AFTER_SECONDS, LONGEST_SECONDS, Backoff, Outage
from penstock.worker.agent.settler import Settler
from penstock.worker.processes import ORPHANED
from penstock.worker.protocol import Load, Loaded


async def declare(loaded: Loaded, api: WorkerApi, code_age_seconds: float) -> None:
    """Declare the app's schedules to the server. InvalidSetting if one is refused.

    Declarations of newer code stay.
    """
    if not loaded.schedules:
        return
    requests = [msgspec.json.decode(raw, type=ScheduleRequest) for raw in loaded.schedules]
    try:
        await api.declare([replace(one, code_age_seconds=code_age_seconds) for one in requests])
    except (Forbidden, Invalid, TooLarge) as error:
        raise InvalidSetting(f"a schedule of the app was refused: {error.message}") from error


if TYPE_CHECKING:
    from penstock.worker.agent.task_protection import TaskProtection

ECS_AGENT = "ECS_AGENT_URI"
"""The variable that leads a task of ECS to its agent."""

UNFIT = re.compile(r"[^A-Za-z0-9._:-]+")


def new_worker_id(rng: random.Random, host: str | None = None) -> str:
    """Host, process and four random digits, in letters that are safe in a name."""
    name = UNFIT.sub("-", host or socket.gethostname()).strip("-._:")[:64] or "worker"
    return f"{name}-{os.getpid()}-{rng.getrandbits(16):04x}"


def usable_cores() -> int:
    """The cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


logger = logging.getLogger("penstock.worker")
JOBS_PER_EXECUTOR = 16
SHARING = (HandlerKind.ASYNC, HandlerKind.THREAD)
CLAIM_LINGER = seconds(0.2)
"""How long a claim that is pending when a drain begins may still bring jobs, which are then released."""
LAST_WORDS = seconds(5.0)


class Agent:
    """One worker: `start` it, then `run` it until a `drain` has ended it. `drain` may be called at any time."""

    def __init__(
        self,
        app: str,
        api: WorkerApi,
        settings: Settings,
        clock: Clock,
        *,
        worker: str | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._app = app
        self._api = api
        self._settings = settings
        self._clock = clock
        self._rng = rng or random.Random()
        self._outage = Outage(clock)
        self._drain_state = Drain()
        self._told_to_drain = False
        self.id = worker or new_worker_id(self._rng)
        self.executors_wanted = settings.worker.executors or usable_cores()
        self.capacity = settings.worker.capacity or JOBS_PER_EXECUTOR * self.executors_wanted
        self._started_at, self._started = clock.now(), clock.monotonic()
        self._ready = False

    # -- lifecycle

    async def start(self) -> None:
        """Start the executors, learn the app's types from them, and join. InvalidSetting if it cannot be imported."""
        self._scratch = tempfile.mkdtemp(prefix="penstock-")
        self._executors = Executors(self._plan(), self._clock, self._rng)
        try:
            self._executors.mend()
            self._loaded = await self._load()
            self._signatures = {one.name: signature_of(one.params_schema) for one in self._loaded.types}
            self._terms = self._terms_of(await self._join())
        except BaseException:
            await self._end_executors()
            raise
        self._assemble(self._loaded)
        self._ready = True
        logger.info("worker %s is ready for %s", self.id, ", ".join(self._types) or "nothing")

    async def run(self) -> None:
        """Work until drained; afterwards no job is held and no process is left."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._attempts.open(tasks, self._heartbeat)
                claiming, loops = self._start_claiming(tasks), self._start_loops(tasks)
                await self._drain_state.wait_for_begin()
                await self._end_claiming(claiming)
                await self._drain()
                for loop in loops:
                    loop.cancel()
                self._settler.close()
                self._logs.close()
        finally:
            await self._end_executors()
            if self._protection is not None:
                await self._protection.close()
        await self._say_goodbye()

    def beat(self) -> None:
        """Send a heartbeat at once: its answer may hold cancels."""
        if self._ready:
            self._heartbeat.now()

    def drain(self) -> None:
        """Stop claiming, let running jobs finish, release the rest. A second call releases at once."""
        if self._told_to_drain:
            self._drain_state.hurry()
        self._told_to_drain = True
        self._drain_state.begin(seconds(self._settings.worker.drain_seconds))

    def _drain_as_asked(self, request: DrainRequest) -> None:
        """Drain because the registry asks for it: with the patience of the request, whatever the settings say."""
        if not self._drain_state.on:
            logger.info("worker %s is asked to drain", self.id)
        self._drain_state.begin(request.patience)

    def _start_claiming(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        return [
            self._start_loop(tasks, "claim", partial(self._claimer.step, least, self._new_backoff()))
            for least in {1, max(2, self.capacity // 2)}
        ]

    def _start_loops(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        protecting = [] if self._protection is None else [self._start_loop(tasks, "protect", self._protection.step)]
        return [
            *protecting,
            self._start_loop(tasks, "settle", self._settler.step),
            self._start_loop(tasks, "renew", self._heartbeat.step),
            self._start_loop(tasks, "log", self._logs.step),
            self._start_loop(tasks, "watch", self._watchdog.step),
        ]

    def _start_loop(
        self, tasks: asyncio.TaskGroup, name: str, step: Callable[[], Awaitable[None]]
    ) -> asyncio.Task[None]:
        return tasks.create_task(run_forever(name, step, self._clock), name=name)

    async def _end_claiming(self, claiming: list[asyncio.Task[None]]) -> None:
        """End the claims before any job is released: a pending claim could return the same job to this worker."""
        self._attempts.close()
        self._heartbeat.now()
        await within(CLAIM_LINGER, self._claimer.wait_until_idle())
        for claim in claiming:
            claim.cancel()
        await asyncio.wait(claiming, timeout=LAST_WORDS.total_seconds())

    async def _drain(self) -> None:
        await self._drain_state.carry_out(self._attempts, self._settler, self._terms)
        await within(LAST_WORDS, self._settler.quiet())

    async def _end_executors(self) -> None:
        await self._executors.close()
        remove(self._scratch)

    async def _say_goodbye(self) -> None:
        try:
            await within(LAST_WORDS, self._api.leave(self.id))
        except PenstockError as error:
            logger.warning("could not say goodbye to the server: %s", error)
        logger.info("worker %s has ended", self.id)

    # -- starting

    def _plan(self) -> Plan:
        worker, limits = self._settings.worker, self._settings.limits
        return Plan(
            load=Load(self._app, limits.log_bytes, limits.result_bytes, worker.url, worker.key),
            wanted=self.executors_wanted,
            places=2 * self.capacity,
            memory_bytes=limit_bytes(worker.memory_mib, self.executors_wanted),
            recycle_jobs=worker.recycle_jobs,
            recycle_bytes=worker.recycle_mib * MIB,
        )

    async def _load(self) -> Loaded:
        logger.info("worker %s starts %d executors for %s", self.id, self.executors_wanted, self._app)
        loaded = await within(seconds(LOAD_SECONDS), self._executors.loading.first)
        if loaded is None:
            raise InvalidSetting(f"{self._app} was not imported within {LOAD_SECONDS:g} s")
        return loaded

    async def _join(self) -> JoinResponse:
        backoff = self._new_backoff()
        while True:
            try:
                answer = await self._join_once()
                await declare(self._loaded, self._api, self._code_age())
            except Unavailable as error:
                await backoff.wait(error)
            else:
                backoff.over()
                return answer

    async def _join_once(self) -> JoinResponse:
        return await self._api.join(self._describe(), self._loaded.types)

    def _code_age(self) -> float:
        """Seconds since this worker's code was deployed: as the settings say, or since it started."""
        deployed_at = self._settings.worker.deployed or self._started_at
        at_start = max(0.0, (self._started_at - deployed_at).total_seconds())
        return min(LONG_AGO_SECONDS, at_start + self._clock.monotonic() - self._started)

    def _terms_of(self, joined: JoinResponse) -> LeaseTerms:
        return LeaseTerms.of(joined.lease_seconds, joined.heartbeat_seconds, self._settings.worker.grace_seconds)

    def _assemble(self, loaded: Loaded) -> None:
        kinds = {one.name: one.kind for one in loaded.types}
        rules = Rules(
            capacity=self.capacity,
            grace=self._settings.worker.grace_seconds,
            log_bytes=self._settings.limits.log_bytes,
            result_bytes=self._settings.limits.result_bytes,
            scratch=self._scratch,
            kinds=kinds,
            shared=frozenset(name for name, kind in kinds.items() if kind in SHARING),
            programs=loaded.programs,
        )
        api, clock, terms = self._api, self._clock, self._terms
        declined = Declined(clock)
        self._logs = Logs(api, clock, self._new_quiet_backoff)
        self._settler = Settler(api, clock, self._logs, terms, self._new_backoff(), self._new_quiet_backoff, declined)
        self._attempts = Attempts(
            rules, terms, api, clock, self._executors, self._settler, self._logs, self._new_backoff
        )
        self._heartbeat = Heartbeat(
            api, self._attempts, self._describe, self._join_once, self._drain_as_asked, terms, clock, self._outage,
            self._new_backoff(LONGEST_SECONDS),
        )  # fmt: skip
        self._protection = self._new_protection()
        self._claimer = Claimer(
            self.id, self._work_request(), api, self._attempts, terms, clock, declined, self._protection
        )
        self._watchdog = Watchdog(self._attempts, self._executors, clock)
        self._executors.report_to(self._attempts)
        if HandlerKind.ISOLATED in kinds.values():
            self._executors.keep_spare()

    def _new_protection(self) -> "TaskProtection | None":
        """None outside of ECS, and where it is not wanted."""
        uri = os.environ.get(ECS_AGENT)
        if not uri or not self._settings.worker.task_protection:
            return None
        from penstock.worker.agent.task_protection import TaskProtection

        return TaskProtection(uri, lambda: bool(self._attempts.running()), self._clock)

    def _work_request(self) -> WorkRequest:
        worker = self._settings.worker
        served = frozenset(worker.queues) if worker.queues else None
        return WorkRequest(frozenset(self._types), served, frozenset(worker.except_queues))

    @property
    def _types(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._loaded.types)

    def _describe(self) -> Worker:
        return Worker(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            app=self._settings.worker.app or self._app,
            types=self._types,
            signatures=self._signatures,
            queues=self._settings.worker.queues or None,
            except_queues=self._settings.worker.except_queues,
            capacity=self.capacity,
            running=len(self._attempts.running()) if self._ready else 0,
            state=WorkerState.DRAINING if self._drain_state.on else WorkerState.READY,
            started_at=self._started_at,
            code_age_seconds=self._code_age(),
        )

    def _new_backoff(self, longest_after: float = LONGEST_AFTER_SECONDS) -> Backoff:
        return Backoff(self._outage, self._clock, self._rng, longest_after)

    def _new_quiet_backoff(self) -> Backoff:
        """A backoff for calls that fail alone while the server answers others."""
        return Backoff(None, self._clock, self._rng)


BUSY_INTERVAL = seconds(0.1)
IDLE_INTERVAL = seconds(1.0)
MEMORY_SECONDS = 0.25


class Watchdog:
    """Checks attempts and executors: ten times a second while jobs run, else on changes and every second."""

    def __init__(self, attempts: Attempts, executors: Executors, clock: Clock) -> None:
        self._attempts = attempts
        self._executors = executors
        self._clock = clock
        self._memory_at = clock.monotonic()

    async def step(self) -> None:
        """Check once, then wait until the next check."""
        self.look()
        if self._attempts.running() or self._executors.unsteady:
            await self._clock.sleep(BUSY_INTERVAL)
        else:
            await within(IDLE_INTERVAL, self._attempts.wait_for_change())

    def look(self) -> None:
        self._attempts.look()
        self._executors.look()
        now = self._clock.monotonic()
        if now >= self._memory_at:
            self._memory_at = now + MEMORY_SECONDS
            self._executors.look_at_memory()


SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def run(agent: Agent) -> None:
    """Start the agent and work until a signal or its parent's end drains it. InvalidSetting from its start.

    A second signal releases running jobs at once. Afterwards signals are blocked: one more must not turn an orderly
    exit into a death by signal.
    """
    starting = asyncio.ensure_future(agent.start())
    asked = False

    def stop(*, hurry: bool) -> None:
        nonlocal asked
        if hurry or not asked:
            agent.drain()
        asked = True
        starting.cancel()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, partial(stop, hurry=True))
    loop.add_signal_handler(ORPHANED, partial(stop, hurry=False))
    try:
        await asyncio.wait({starting})
        if not starting.cancelled():
            starting.result()
            await agent.run()
    finally:
        starting.cancel()
        signal.pthread_sigmask(signal.SIG_BLOCK, (*SIGNALS, ORPHANED))
        for number in (*SIGNALS, ORPHANED):
            loop.remove_signal_handler(number)
