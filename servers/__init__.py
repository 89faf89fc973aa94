"""Real servers for tests, the cluster and the benchmark: started on loopback at free ports, ended with their owner.

PostgreSQL, Valkey and SeaweedFS come as wheels, pinned by hash; nginx, PgBouncer, Podman and Prometheus are packages of
Debian's; the emulators of AWS are installed apart.
"""

from servers.emulators import Dynoxide, Ministack, Moto, aws_environ
from servers.launch import Launched, Missing
from servers.nginx import Nginx
from servers.pgbouncer import PgBouncer
from servers.podman import Podman
from servers.postgres import Postgres, Standby
from servers.prometheus import Prometheus, promtool
from servers.proxy import FaultProxy
from servers.seaweed import Seaweed
from servers.valkey import Valkey

__all__ = [
    "Dynoxide",
    "FaultProxy",
    "Launched",
    "Ministack",
    "Missing",
    "Moto",
    "Nginx",
    "PgBouncer",
    "Podman",
    "Postgres",
    "Prometheus",
    "Seaweed",
    "Standby",
    "Valkey",
    "aws_environ",
    "promtool",
]
