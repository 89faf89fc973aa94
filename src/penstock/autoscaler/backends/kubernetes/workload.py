"""What a fleet is made of, in the words of the Kubernetes API: a Deployment and its pods. Pure."""

import hashlib
import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec
from lightkube.models.apps_v1 import DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment
from lightkube.models.core_v1 import (
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    LocalObjectReference,
    ObjectFieldSelector,
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
    SecretEnvSource,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from msgspec import Struct

from penstock.autoscaler.backends.launch import worker_settings
from penstock.autoscaler.backends.seam import MEMBER, LaunchSpec
from penstock.config import variable

FLEET: Final = "penstock/fleet"
SYSTEM: Final = "penstock/system"
ORDER: Final = "penstock/order"
"""On a Deployment and its pods: the digest of what they are made of, so that they are replaced only when it changed."""

MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "penstock"}
CONTAINER: Final = "worker"

DRAIN_SECONDS: Final = variable("worker.drain_seconds")

GIVING_BACK: Final = timedelta(seconds=60)
"""What a worker needs, after the drain is over, to give back the jobs that have not finished."""

SLUG_LETTERS: Final = 30
UNFIT: Final = re.compile(r"[^a-z0-9]+")


class PodDefaults(Struct, frozen=True, kw_only=True):
    """What holds for every pod, whatever the fleet.

    `image` is for fleets that name none. `secrets` are Secrets of the namespace whose entries become variables: the
    place for keys and store URLs, since a Deployment's own environment can be read by all who may read Deployments.
    `drain` is how long a stopped worker may finish its jobs: Kubernetes needs a limit.
    """

    image: str | None = None
    secrets: tuple[str, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    service_account: str | None = None
    node_selector: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    drain: timedelta = timedelta(hours=1)


def labels_of(system: str, fleet: str) -> dict[str, str]:
    """What the pods of a fleet are found by."""
    return {SYSTEM: system, FLEET: slug(fleet)}


def deployment_name(system: str, fleet: str) -> str:
    return f"{system}-fleet-{slug(fleet)}"


def slug(fleet: str) -> str:
    """A fleet's name in letters that Kubernetes takes; a digest keeps apart those that would look the same."""
    plain = UNFIT.sub("-", fleet.lower()).strip("-")
    if plain == fleet and len(plain) <= SLUG_LETTERS:
        return plain
    return f"{plain[: SLUG_LETTERS - 9].rstrip('-')}-{hashlib.sha256(fleet.encode()).hexdigest()[:8]}"


def deployment(spec: LaunchSpec, image: str, system: str, around: PodDefaults) -> Deployment:
    """A fleet's Deployment, with no pods yet."""
    own = labels_of(system, spec.fleet)
    labels = {**around.labels, **MANAGED_BY, **own}
    pods = _pods(spec, image, around)
    made_as = _digest(labels, pods)
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels, annotations={ORDER: made_as}), spec=pods)
    return Deployment(
        metadata=ObjectMeta(
            name=deployment_name(system, spec.fleet),
            labels=labels,
            annotations={FLEET: spec.fleet, ORDER: made_as},
        ),
        spec=DeploymentSpec(
            replicas=0,
            selector=LabelSelector(matchLabels=own),
            template=template,
            # Where a changed spec replaces pods: new ones first, and the old ones drain.
            strategy=DeploymentStrategy(
                type="RollingUpdate", rollingUpdate=RollingUpdateDeployment(maxSurge=1, maxUnavailable=0)
            ),
        ),
    )


def _digest(labels: Mapping[str, str], pods: PodSpec) -> str:
    return hashlib.sha256(msgspec.json.encode((labels, pods), order="sorted")).hexdigest()[:16]


def _pods(spec: LaunchSpec, image: str, around: PodDefaults) -> PodSpec:
    return PodSpec(
        containers=[_container(spec, image, around)],
        terminationGracePeriodSeconds=math.ceil((around.drain + GIVING_BACK).total_seconds()),
        serviceAccountName=around.service_account,
        # Neither the worker nor the user's code needs the Kubernetes API.
        automountServiceAccountToken=False if around.service_account is None else None,
        # A Service called penstock-server would put variables into the pod that look like settings.
        enableServiceLinks=False,
        imagePullSecrets=[LocalObjectReference(name=name) for name in around.pull_secrets] or None,
        nodeSelector=dict(around.node_selector) or None,
    )


def _container(spec: LaunchSpec, image: str, around: PodDefaults) -> Container:
    return Container(
        name=CONTAINER,
        image=image,
        command=[_literal(word) for word in spec.command or ("penstock", "worker", spec.app)],
        env=_environment(spec, around),
        envFrom=[EnvFromSource(secretRef=SecretEnvSource(name=name)) for name in around.secrets] or None,
        resources=_limits(spec),
    )


def _environment(spec: LaunchSpec, around: PodDefaults) -> list[EnvVar]:
    settings = worker_settings(spec)
    settings[DRAIN_SECONDS] = f"{around.drain.total_seconds():g}"
    texts = {name: text for name, text in {**spec.environment, **settings}.items() if name != MEMBER}
    name = EnvVarSource(fieldRef=ObjectFieldSelector(fieldPath="metadata.name"))
    own = EnvVar(name=MEMBER, valueFrom=name)
    return [*(EnvVar(name=key, value=_literal(text)) for key, text in sorted(texts.items())), own]


def _literal(text: str) -> str:
    """Kubernetes replaces `$(NAME)` in what it hands to a container, and takes `$$` for a dollar."""
    return text.replace("$", "$$")


def _limits(spec: LaunchSpec) -> ResourceRequirements | None:
    limits = {}
    if spec.cpus is not None:
        limits["cpu"] = f"{max(1, round(spec.cpus * 1000))}m"
    if spec.memory_mib is not None:
        limits["memory"] = f"{spec.memory_mib}Mi"
    return ResourceRequirements(limits=limits) if limits else None
