"""The few calls of the Kubernetes API that a fleet needs. Each has a deadline, and FleetUnavailable when it fails."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import httpx2
import msgspec
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.async_client import AsyncClient
from lightkube.core.exceptions import ConfigError
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.resources.apps_v1 import Deployment, DeploymentScale
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from penstock.model.errors import FleetUnavailable

CALL_WITHIN: Final = timedelta(seconds=10)
MAX_CONCURRENT: Final = 16
"""How many calls are open at a time."""

SCALE_TRIES: Final = 10
UNAUTHORIZED, FORBIDDEN, MISSING, CONFLICT = 401, 403, 404, 409

ADVICE: Final = {
    UNAUTHORIZED: "its token is not known there: run with the service account of deploy/kubernetes/rbac.yaml, or renew "
    "the kubeconfig",
    FORBIDDEN: "the account lacks a right: apply deploy/kubernetes/rbac.yaml in this namespace",
    MISSING: "check that the namespace exists and that the address is that of a Kubernetes API",
}


class Cluster:
    """One namespace of a cluster. It is connected at the first call.

    Without `config`: that of the pod this runs in, else KUBECONFIG, else `~/.kube/config`. Without `namespace`: the
    one named there.
    """

    def __init__(self, config: KubeConfig | None, namespace: str | None, within: timedelta = CALL_WITHIN) -> None:
        self._config = config
        self._namespace = namespace
        self._within = within
        self._client: AsyncClient | None = None
        self._gate = asyncio.Semaphore(MAX_CONCURRENT)

    async def deployment(self, name: str) -> Deployment | None:
        found = None
        async with self._ask(f"read Deployment {name}", fine={MISSING}) as client:
            found = await client.get(Deployment, name)
        return found

    async def create(self, deployment: Deployment) -> None:
        """No error if it exists already."""
        async with self._ask(f"create Deployment {_name(deployment)}", fine={CONFLICT}) as client:
            await client.create(deployment)

    async def change(self, name: str, operations: list[Mapping[str, Any]]) -> None:
        """Change a Deployment by the operations of a JSON patch."""
        async with self._ask(f"change Deployment {name}") as client:
            await client.patch(Deployment, name, list(operations), patch_type=PatchType.JSON)

    async def scale(self, name: str, reckon: Callable[[int], int]) -> int:
        """Set a Deployment's replicas to what `reckon` makes of the present number; again if it changes meanwhile."""
        for _ in range(SCALE_TRIES):
            wanted = await self._scale_once(name, reckon)
            if wanted is not None:
                return wanted
        raise FleetUnavailable(f"Deployment {name} is being changed by others all the time: who else scales it?")

    async def pods(self, labels: Mapping[str, str]) -> list[Pod]:
        found: list[Pod] = []
        async with self._ask("list its pods") as client:
            found = [pod async for pod in client.list(Pod, labels=dict(labels))]
        return found

    async def annotate(self, pod: str, key: str, value: str | None) -> None:
        """None takes the annotation away. No error if the pod has gone."""
        async with self._ask(f"annotate pod {pod}", fine={MISSING}) as client:
            change = {"metadata": {"annotations": {key: value}}}
            await client.patch(Pod, pod, change, patch_type=PatchType.MERGE)

    async def delete(self, pod: str, grace: int | None = None) -> None:
        """Have it drain for so many seconds, or as long as its template says. No error if it has gone."""
        async with self._ask(f"delete pod {pod}", fine={MISSING}) as client:
            await client.delete(Pod, pod, grace_period=grace)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _scale_once(self, name: str, reckon: Callable[[int], int]) -> int | None:
        """The replicas there are now; None if they were changed since they were read."""
        settled = None
        async with self._ask(f"scale Deployment {name}", fine={CONFLICT}) as client:
            scale = await client.get(DeploymentScale, name)
            before = (scale.spec.replicas if scale.spec else None) or 0
            wanted = max(0, reckon(before))
            if wanted != before:
                # The version that was read goes with it: the server refuses if it is no longer the last.
                scale.spec = ScaleSpec(replicas=wanted)
                await client.replace(scale, name)
            settled = wanted
        return settled

    @asynccontextmanager
    async def _ask(self, what: str, *, fine: Collection[int] = ()) -> AsyncIterator[AsyncClient]:
        """The context of one call; a status in `fine` ends it as a success."""
        try:
            async with self._gate, asyncio.timeout(self._within.total_seconds()):
                yield self._reached()
        except httpx2.HTTPStatusError as error:
            if error.response.status_code not in fine:
                raise self._refused(what, error) from None
        except TimeoutError:
            raise FleetUnavailable(
                f"{self._place()} did not {what} within {self._within.total_seconds():g} s; is it overloaded?"
            ) from None
        # lightkube raises AssertionError for a kubeconfig without a user.
        except (ConfigError, AssertionError) as error:
            advice = "run inside the cluster with a service account, or set KUBECONFIG"
            raise FleetUnavailable(f"no way to a Kubernetes cluster is configured: {advice} ({error})") from error
        # lightkube raises KeyError for an error response without a content type, such as a proxy's.
        except (httpx2.HTTPError, msgspec.MsgspecError, OSError, KeyError) as error:
            raise FleetUnavailable(
                f"{self._place()} could not {what}: check that the address is right and that it can be reached from "
                f"here ({type(error).__name__}: {error})"
            ) from error

    def _reached(self) -> AsyncClient:
        if self._client is None:
            timeout = httpx2.Timeout(self._within.total_seconds())
            self._client = AsyncClient(
                self._config, namespace=self._namespace, timeout=timeout, field_manager="penstock"
            )
        return self._client

    def _place(self) -> str:
        if self._client is None:
            return "the Kubernetes API"
        return f"the Kubernetes API at {self._client.config.cluster.server} (namespace {self._client.namespace})"

    def _refused(self, what: str, error: httpx2.HTTPStatusError) -> FleetUnavailable:
        status = error.response.status_code
        advice = ADVICE.get(status, "what it says")
        return FleetUnavailable(f"{self._place()} did not {what}: {advice} ({status}: {_message(error)})")


def _message(error: httpx2.HTTPStatusError) -> str:
    status = getattr(error, "status", None)
    return str(getattr(status, "message", None) or error)


def _name(deployment: Deployment) -> str:
    return (deployment.metadata.name if deployment.metadata else None) or ""
