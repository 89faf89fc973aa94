"""nginx → APIs → PostgreSQL shards, Valkey and S3, with schedulers and workers: all on this machine, ended together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from cluster.jobs import LEDGER
from cluster.roles import APP, Api, Role
from cluster.sink import Sink
from servers import Nginx, Postgres, Seaweed, Standby, Valkey
from servers.launch import free_port
from servers.seaweed import ACCESS_KEY, SECRET_KEY

CAPACITY = 8
DATABASE = "penstock"
PORTS_TRIED = 20

SETTINGS = """\
[store]
shards = [{shards}]

[broker]
url = "{broker}"

[objects]
url = "s3://penstock/cluster"
endpoint = "{objects}"

[worker]
url = "http://127.0.0.1:{nginx}"
capacity = {capacity}
executors = 1
drain_seconds = 5

[webhooks]
# The sink is on this machine; schedulers, which listen nowhere, do not send to it unless they are told to.
allow = ["127.0.0.0/8"]
"""


Way = Callable[[Sequence[int]], Sequence[int]]


class Size(Struct, frozen=True):
    """How many of each; half of the workers are direct, the others go through nginx.

    `spare`: a database that can be added as a shard. `standby`: a synchronous replica of shard 0, named in its URL.
    The sink of webhooks is there always, and runs once it is given a mood.
    """

    shards: int = 3
    apis: int = 3
    schedulers: int = 2
    workers: int = 4
    spare: bool = False
    standby: bool = False


WHOLE = Size(spare=True, standby=True)
"""What every fault can be inflicted on."""


class Cluster:
    """Everything that runs, by role."""

    def __init__(self, folder: Path, size: Size) -> None:
        self.folder = folder
        self.size = size
        self.ledger = folder / "ledger.jsonl"
        self.histories = folder / "histories"
        self.shards: list[Postgres] = []
        self.spare: Postgres | None = None
        self.standby: Standby | None = None
        self.apis: list[Api] = []
        self.schedulers: list[Role] = []
        self.workers: list[Role] = []
        self._port = free_port()

    @property
    def environ(self) -> Mapping[str, str]:
        return {
            LEDGER: str(self.ledger),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "TMPDIR": str(self.folder / "tmp"),
        }

    @property
    def port(self) -> int:
        """Where clients call."""
        return self._port

    def start_servers(self, undo: ExitStack) -> None:
        self.shards = [self._start_shard(undo, f"shard{n}") for n in range(self.size.shards)]
        if self.size.spare:
            self.spare = self._start_shard(undo, "spare")
        if self.size.standby:
            self.standby = undo.enter_context(Standby(self.folder / "standby", self.shards[0]))
        self.valkey = Valkey(self.folder / "valkey")
        undo.enter_context(self.valkey)
        self.seaweed = self._seaweed(undo)
        self.sink = Sink(self.folder / "sink", self.histories / "sink.jsonl")
        undo.callback(self.sink.stop)

    def start_roles(self, undo: ExitStack, shard_ports: Sequence[int]) -> None:
        (self.folder / "tmp").mkdir()
        self._settle(shard_ports)
        self.apis = [Api(*self._place(f"api{n}")) for n in range(self.size.apis)]
        self.nginx = Nginx(self.folder / "nginx", [api.port for api in self.apis], self._port)
        self.schedulers = [Role(*self._place(f"scheduler{n}"), "scheduler") for n in range(self.size.schedulers)]
        self.workers = [Role(*self._place(f"worker{n}"), *self._work(n)) for n in range(self.size.workers)]
        roles = [*self.apis, *self.schedulers, *self.workers]
        for role in roles:
            undo.callback(role.stop)
            role.launch()
        undo.enter_context(self.nginx)
        for role in roles:
            role.await_ready()

    def ask_to_stop(self) -> None:
        """Tell all roles at once, so that they drain together."""
        for role in (*self.workers, *self.schedulers, *self.apis):
            if role.alive:
                role.ask_to_stop()

    def _start_shard(self, undo: ExitStack, name: str) -> Postgres:
        shard = undo.enter_context(Postgres(self.folder / name))
        shard.database(DATABASE)
        return shard

    def _work(self, number: int) -> list[str]:
        return ["worker", APP, *(["--direct"] if number < self.size.workers / 2 else [])]

    def _place(self, name: str) -> tuple[Path, str, Path, Mapping[str, str]]:
        return self.folder / name, name, self.folder / "penstock.toml", self.environ

    def _settle(self, shard_ports: Sequence[int]) -> None:
        """Write the one file of settings."""
        hosts = [[port] for port in shard_ports]
        if self.standby is not None:
            hosts[0].append(self.standby.port)
        text = SETTINGS.format(
            shards=", ".join(f'"{number}={shard_url(*ports)}"' for number, ports in enumerate(hosts)),
            broker=self.valkey.url,
            objects=self.seaweed.endpoint,
            nginx=self._port,
            capacity=CAPACITY,
        )
        (self.folder / "penstock.toml").write_text(text)

    def _seaweed(self, undo: ExitStack) -> Seaweed:
        """It listens at each of its ports plus 10,000 too, so not every free port will do."""
        for number in range(PORTS_TRIED):
            seaweed = Seaweed(self.folder / f"seaweed{number}")
            with suppress(RuntimeError):
                undo.enter_context(seaweed)
                return seaweed
        raise RuntimeError(f"SeaweedFS found no ports; see {self.folder}")


def shard_url(*ports: int) -> str:
    """A shard's URL; several ports are a primary and its standby."""
    return f"postgresql://penstock@{','.join(f'127.0.0.1:{port}' for port in ports)}/{DATABASE}"


@contextmanager
def running(folder: Path, size: Size | None = None, way: Way = list) -> Iterator[Cluster]:
    """A cluster while the body runs; nothing of it is left afterwards. To be started by the thread that ends last.

    `way` says at which ports the roles reach the shards, given their own.
    """
    with ExitStack() as stopping:
        cluster = Cluster(folder, size or Size())
        cluster.start_servers(stopping)
        cluster.start_roles(stopping, way([shard.port for shard in cluster.shards]))
        try:
            yield cluster
        finally:
            cluster.ask_to_stop()
