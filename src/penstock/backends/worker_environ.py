"""The environment of a worker that an autoscaler starts: a process of this machine, a container or a pod."""

import os
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from penstock.backends import data_folder, embedded
from penstock.config import Settings, variable
from penstock.worker.processes import PARENT

PASSED_ON = ("store", "broker", "objects", "log", "timing", "limits", "retention")
"""The sections of the settings that a local worker gets unchanged."""

OF_THIS_MACHINE = frozenset(
    {PARENT, variable("server.data"), variable("worker.deployed_at"), variable("metrics.address")}
)
"""Variables that are meaningless on another machine; an image sets its own time of deployment."""

WITHOUT_SECRETS = ("objects", "log", "timing", "limits", "retention", "worker")


def worker_environ(settings: Settings, url: str) -> dict[str, str]:
    """The environment that passes its settings to a local worker.

    If store and broker are shared ones, the worker is direct.
    """
    shared = bool(settings.broker.url) and not embedded(settings)
    worker = replace(settings.worker, url=url, direct=shared or settings.worker.direct)
    texts = _texts({name: getattr(settings, name) for name in PASSED_ON} | {"worker": worker})
    data = {variable("server.data"): str(data_folder(settings))}
    # Several workers cannot share one address.
    return {**texts, **data, variable("metrics.address"): "", PARENT: str(os.getpid())}


def container_environ(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker in a container: its settings, and what `fleet.pass_environment` names of `environ`.

    A URL may leave its password to the environment of the process that uses it.
    """
    passed = {name: environ[name] for name in settings.fleet.pass_environment if name in environ}
    told = {**passed, **worker_environ(settings, settings.worker.url)}
    return {name: value for name, value in told.items() if name not in OF_THIS_MACHINE}


def pod_environ(settings: Settings) -> dict[str, str]:
    """The environment of a worker in a pod, without secrets: too many users can read a Deployment.

    The worker's key, and the URLs of store and broker for one that is direct, come from the Secrets of `fleet.secrets`.
    """
    texts = _texts({name: getattr(settings, name) for name in WITHOUT_SECRETS})
    secret = {variable("worker.key"), *OF_THIS_MACHINE}
    return {name: value for name, value in texts.items() if name not in secret}


def task_environ(settings: Settings) -> dict[str, str]:
    """The environment of a worker in a task of ECS: what differs from the defaults, without secrets.

    ECS takes few characters with a start, and shows them to all that may look at tasks. The worker's key, and URLs of
    store and broker for one that is direct, belong into the task definition.
    """
    own, plain = pod_environ(settings), pod_environ(Settings())
    return {name: value for name, value in own.items() if value != plain[name]}


def _texts(sections: Mapping[str, msgspec.Struct]) -> dict[str, str]:
    return {
        variable(f"{section}.{name}"): _text(value)
        for section, struct in sections.items()
        for name, value in msgspec.structs.asdict(struct).items()
    }


def _text(value: object) -> str:
    return "".join(f"{entry}\n" for entry in value) if isinstance(value, tuple) else str(value)
