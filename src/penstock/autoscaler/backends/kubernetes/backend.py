"""The fleet backend for Kubernetes. All its state is in the cluster: labels, replicas, deletion costs."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from lightkube.config.kubeconfig import KubeConfig
from lightkube.models.apps_v1 import DeploymentStatus
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Pod

from penstock.autoscaler.backends.kubernetes.cluster import CALL_WITHIN, Cluster
from penstock.autoscaler.backends.kubernetes.pods import (
    COST,
    LEAST_COST,
    active,
    in_danger,
    made_as,
    marked,
    member,
    name_of,
)
from penstock.autoscaler.backends.kubernetes.workload import ORDER, PodDefaults, deployment, deployment_name, labels_of
from penstock.autoscaler.backends.seam import Condition, FleetMember, LaunchSpec
from penstock.model.clock import Clock, seconds
from penstock.model.errors import FleetUnavailable

logger = logging.getLogger("penstock.autoscaler")

APPEAR_WITHIN: Final = seconds(10.0)
LOOK_AGAIN: Final = seconds(0.1)
LEAST_GRACE: Final = 1
"""A grace of 0 would forget a pod whose worker may still run."""


class KubernetesFleets:
    """Workers as the pods of one Deployment for each fleet, found by their labels, whichever process started them.

    `system` separates installations that share a namespace. Members outlive the autoscaler. A Deployment names its pods
    itself, and starts a worker that ends again in the same pod, under the same name. Nothing else may scale these
    Deployments: neither an HPA nor KEDA.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        config: KubeConfig | None = None,
        namespace: str | None = None,
        system: str = "penstock",
        around: PodDefaults | None = None,
        call_within: timedelta = CALL_WITHIN,
        appear_within: timedelta = APPEAR_WITHIN,
    ) -> None:
        self._cluster = Cluster(config, namespace, call_within)
        self._clock = clock
        self._system = system
        self._defaults = around or PodDefaults()
        self._appear_within = appear_within

    async def start(self, spec: LaunchSpec, count: int) -> list[str]:
        """Ask for so many pods more; the names of those that have appeared within a deadline.

        Pods that were asked for and have not appeared, for want of quota, are still wanted: they count first towards
        the next start, and are no longer wanted after the next stop.
        """
        await self._declare(spec)
        before = await self._pods(spec.fleet)
        there = sum(map(active, before))
        wanted = await self._cluster.scale(
            self._deployment(spec.fleet), lambda replicas: replicas + max(0, count - max(0, replicas - there))
        )
        logger.info("fleet %s: %d replicas wanted", spec.fleet, wanted)
        return await self._wait_for_pods(spec.fleet, {name_of(pod) for pod in before}, count)

    async def stop(self, fleet: str, names: Sequence[str], patience: timedelta | None = None) -> None:
        """Drain these pods, and no others that may be busy.

        Without patience they drain for as long as `PodDefaults.drain`: they are given the lowest deletion cost, the
        replicas are lowered by as many, and those that the cluster has not chosen by then are deleted by name.
        FleetUnavailable while it might choose busy ones instead. With patience they are deleted first, which cannot be
        refused, and those that the cluster starts in their place are dropped; they are killed when it is over, and
        their jobs come back when the leases run out: Kubernetes cannot ask twice.
        """
        pods = await self._pods(fleet)
        chosen = [pod for pod in pods if name_of(pod) in set(names)]
        there, going = [pod for pod in pods if active(pod)], {name_of(pod) for pod in chosen if active(pod)}
        if patience is not None:
            grace = max(LEAST_GRACE, math.ceil(patience.total_seconds()))
            await _all(self._cluster.delete(name_of(pod), grace) for pod in chosen)
            await self._lower(fleet, there, going, sparing=False)
        else:
            await self._lower(fleet, there, going, sparing=True)
            await _all(self._cluster.delete(name) for name in sorted(going))

    async def members(self, fleet: str) -> list[FleetMember]:
        """Every pod of the fleet. One that was stopped is gone when it has ended; one that failed is listed once."""
        found = [member(pod) for pod in await self._pods(fleet)]
        over = [one.name for one in found if one.condition is Condition.ENDED]
        await _all(self._cluster.delete(name) for name in over)
        return sorted(found, key=lambda one: one.name)

    def elsewhere(self, fleet: str, workers: Iterable[str]) -> list[str]:
        """None: the cluster lists all members to every autoscaler."""
        return []

    async def external_count(self, fleet: str) -> None:
        """None: only autoscalers start and stop its workers."""

    async def stand_by(self) -> None:
        """Nothing to drain: the leading autoscaler sees all members."""

    async def close(self) -> None:
        """Close the connection. All pods go on."""
        await self._cluster.close()

    async def _declare(self, spec: LaunchSpec) -> None:
        """Create or change the Deployment to be as the spec says. Its replicas stay as they are."""
        image = spec.image or self._defaults.image
        if image is None:
            advice = "give it one with image, or set fleet.image"
            raise FleetUnavailable(f"fleet {spec.fleet} has no image to start pods from: {advice}")
        wanted = deployment(spec, image, self._system, self._defaults)
        found = await self._cluster.deployment(self._deployment(spec.fleet))
        if found is None:
            await self._cluster.create(wanted)
        elif not _carries(found, labels_of(self._system, spec.fleet)):
            raise FleetUnavailable(
                f"Deployment {self._deployment(spec.fleet)} is there and is not a fleet's: rename it, or fleet "
                f"{spec.fleet}, or give this Penstock another system name"
            )
        elif _made_as(found) != _made_as(wanted):
            logger.info("fleet %s: its order has changed, pods are replaced", spec.fleet)
            await self._cluster.change(self._deployment(spec.fleet), _remake(wanted))

    async def _wait_for_pods(self, fleet: str, before: Collection[str], count: int) -> list[str]:
        give_up_at = self._clock.monotonic() + self._appear_within.total_seconds()
        while True:
            names = sorted(name for pod in await self._pods(fleet) if (name := name_of(pod)) not in before)
            if len(names) >= count:
                return names
            if self._clock.monotonic() >= give_up_at:
                await self._tell_missing(fleet, count - len(names))
                return names
            await self._clock.sleep(LOOK_AGAIN)

    async def _tell_missing(self, fleet: str, missing: int) -> None:
        found = await self._cluster.deployment(self._deployment(fleet))
        conditions = (found.status.conditions if found and found.status else None) or []
        failures = [one.message or one.reason for one in conditions if one.type == "ReplicaFailure"]
        why = failures[0] if failures else "the cluster does not say why"
        logger.warning("fleet %s: %d pods have not appeared yet: %s", fleet, missing, why)

    async def _lower(self, fleet: str, there: Sequence[Pod], going: set[str], *, sparing: bool) -> None:
        """Have the cluster want fewer pods, and these to go. `sparing`: only if no other can be harmed."""
        found = await self._cluster.deployment(self._deployment(fleet)) if going else None
        if found is None:
            return
        if sparing:
            _require_no_busy(fleet, found, there, going)
        earlier = {name_of(pod) for pod in there if marked(pod)} - going
        # Marks of a stop that was cut short stand only while the cluster has yet to act on them.
        stale = earlier if _replicas(found) >= len(there) else set()
        await _all(self._cluster.annotate(name, COST, None) for name in sorted(stale))
        await _all(self._cluster.annotate(name, COST, LEAST_COST) for name in sorted(going))
        left = len(there) - len(going | (earlier - stale))
        await self._cluster.scale(self._deployment(fleet), lambda replicas: min(replicas, left))

    async def _pods(self, fleet: str) -> list[Pod]:
        return await self._cluster.pods(labels_of(self._system, fleet))

    def _deployment(self, fleet: str) -> str:
        return deployment_name(self._system, fleet)


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Make all calls, also when one fails; the first failure is raised when all are done."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def _require_no_busy(fleet: str, found: Deployment, there: Sequence[Pod], going: Collection[str]) -> None:
    """FleetUnavailable while lowering the replicas might end pods that were not chosen and may be busy."""
    unsure = [name_of(pod) for pod in there if in_danger(pod) and name_of(pod) not in going]
    if unsure:
        raise FleetUnavailable(
            f"fleet {fleet}: pods {', '.join(unsure)} run and are not ready, so Kubernetes would end them first "
            "though they may be busy; it is scaled in when they are ready or gone"
        )
    if _rolling(found, there):
        raise FleetUnavailable(
            f"fleet {fleet}: a changed order is being rolled out, and Kubernetes would choose among old and new pods "
            "by itself; it is scaled in when that is done (kubectl rollout status shows what it waits for)"
        )


def _rolling(found: Deployment, there: Sequence[Pod]) -> bool:
    status = found.status or DeploymentStatus()
    older = (status.updatedReplicas or 0) < (status.replicas or 0)
    return older or any(made_as(pod) != _made_as(found) for pod in there)


def _replicas(found: Deployment) -> int:
    return found.spec.replicas or 0


def _carries(found: Deployment, labels: Mapping[str, str]) -> bool:
    return labels.items() <= ((found.metadata.labels if found.metadata else None) or {}).items()


def _made_as(found: Deployment) -> str | None:
    annotations = (found.metadata.annotations if found.metadata else None) or {}
    return annotations.get(ORDER)


def _remake(wanted: Deployment) -> list[Mapping[str, object]]:
    """Replace the pods' template, and nothing else that may have been added."""
    template = wanted.spec.template.to_dict()
    path = f"/metadata/annotations/{ORDER.replace('/', '~1')}"
    return [
        {"op": "replace", "path": "/spec/template", "value": template},
        {"op": "add", "path": path, "value": _made_as(wanted)},
    ]
