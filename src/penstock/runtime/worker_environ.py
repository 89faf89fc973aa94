"""The environment of a worker that an autoscaler starts: a process of this machine, a container or a pod."""

import os
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from penstock.config import Settings, variable
from penstock.runtime.backends import data_folder, embedded
from penstock.worker.processes import PARENT

PASSED_ON = ("store", "broker", "objects", "log", "timing", "limits", "retention")
"""The sections that a worker beside a server is given as they are; its own are added."""

OF_THIS_MACHINE = frozenset(
    {PARENT, variable("server.data"), variable("worker.deployed_at"), variable("metrics.address")}
)
"""What a worker is told that means nothing elsewhere; an image says itself when it was deployed."""

WITHOUT_SECRETS = ("objects", "log", "timing", "limits", "retention", "worker")


def worker_environ(settings: Settings, url: str) -> dict[str, str]:
    """The settings that a worker needs, as the environment that gives them to another process.

    Beside a server whose store and broker others can reach, it reaches them itself.
    """
    shared = bool(settings.broker.url) and not embedded(settings)
    worker = replace(settings.worker, url=url, direct=shared or settings.worker.direct)
    texts = _texts({name: getattr(settings, name) for name in PASSED_ON} | {"worker": worker})
    data = {variable("server.data"): str(data_folder(settings))}
    # One address cannot be that of several workers.
    return {**texts, **data, variable("metrics.address"): "", PARENT: str(os.getpid())}


def container_environ(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker in a container: its settings, and what `fleet.pass_environment` names of `environ`.

    A URL may leave its password to the environment of the process that uses it.
    """
    passed = {name: environ[name] for name in settings.fleet.pass_environment if name in environ}
    told = {**passed, **worker_environ(settings, settings.worker.url)}
    return {name: value for name, value in told.items() if name not in OF_THIS_MACHINE}


def pod_environ(settings: Settings) -> dict[str, str]:
    """The environment of a worker in a pod, as far as it holds no secret: a Deployment can be read by too many.

    The worker's key, and the URLs of store and broker for one that is direct, come from the Secrets of `fleet.secrets`.
    """
    texts = _texts({name: getattr(settings, name) for name in WITHOUT_SECRETS})
    secret = {variable("worker.key"), *OF_THIS_MACHINE}
    return {name: value for name, value in texts.items() if name not in secret}


def _texts(sections: Mapping[str, msgspec.Struct]) -> dict[str, str]:
    return {
        variable(f"{section}.{name}"): _text(value)
        for section, struct in sections.items()
        for name, value in msgspec.structs.asdict(struct).items()
    }


def _text(value: object) -> str:
    return "".join(f"{entry}\n" for entry in value) if isinstance(value, tuple) else str(value)
