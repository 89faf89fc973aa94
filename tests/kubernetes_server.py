"""A small Kubernetes API on loopback: Deployments with their scale, pods, and the controllers that keep them together.

It takes only what the models of lightkube know, asks for a token, and grants what a Role grants. What it does is what
the documentation of Kubernetes says, as far as a fleet needs it; it is no proof that a real cluster does the same.
"""

import asyncio
import hashlib
import json
import re
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import uvicorn
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.models.autoscaling_v1 import Scale
from lightkube.resources.apps_v1 import Deployment
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Json = dict[str, Any]
NAMESPACE = "penstock"
COST = "controller.kubernetes.io/pod-deletion-cost"
NODES = ("node-a", "node-b")
PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Refusal(Exception):
    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        self.status |= {"code": code, "reason": reason, "message": message}  # type: ignore[dict-item]
        self.code = code


class KubernetesServer:
    """Knobs for tests: `acting` False holds the controllers back, `scheduling` False leaves new pods pending,
    `quota` bounds the pods, `missing_images` cannot be pulled, `rolling` False leaves pods of an older template be,
    `racing` is called before a scale is written, `silent` lets calls hang. Pods in `busy` take until `finish` to end;
    `disturbed` are those of them that were asked to.
    """

    def __init__(self, rules: Sequence[Json]) -> None:
        self.rules = rules
        self.token = secrets.token_hex(8)
        self.deployments: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.acting = self.scheduling = self.rolling = True
        self.quota: int | None = None
        self.missing_images: set[str] = set()
        self.racing: list[Callable[[], None]] = []
        self.silent = False
        self.busy: set[str] = set()
        self.disturbed: set[str] = set()
        self.calls: list[str] = []
        self._version = 0
        self._born = 0
        self._asked = asyncio.Condition()
        self._closing = asyncio.Event()
        self.url = ""

    def config(self, token: str | None = None) -> KubeConfig:
        user = User(token=token or self.token)
        # `insecure` saves loading the certificates of all authorities, which http:// does not need.
        cluster = Cluster(server=self.url, insecure=True)
        return KubeConfig.from_one(cluster=cluster, user=user, namespace=NAMESPACE)

    # -- what a cluster does by itself

    def act(self) -> None:
        """One round of the controllers."""
        if self.acting:
            for deployment in self.deployments.values():
                self._roll(deployment)
                self._reconcile(deployment)
                self._tell(deployment)

    def become_ready(self, name: str) -> None:
        pod, now = self.pods[name], _now()
        pod["spec"]["nodeName"] = NODES[self._born % len(NODES)]
        state = {"running": {"startedAt": now}}
        pod["status"] = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
            "containerStatuses": [_container(pod, state, ready=True)],
        }
        self._touch(pod)

    def become_unready(self, name: str) -> None:
        """Its node no longer says how it is; the worker may go on."""
        self.pods[name]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        self._touch(self.pods[name])

    def restart(self, name: str, reason: str, exit_status: int) -> None:
        """Its container ended and runs again."""
        (container,) = self.pods[name]["status"]["containerStatuses"]
        container["restartCount"] += 1
        container["lastState"] = {"terminated": {"exitCode": exit_status, "reason": reason}}
        self._touch(self.pods[name])

    def fail(self, name: str, reason: str, message: str, exit_status: int) -> None:
        """It ended and is not started again, as when its node is short of memory."""
        pod = self.pods[name]
        state = {"terminated": {"exitCode": exit_status, "reason": "Error"}}
        pod["status"] = {"phase": "Failed", "reason": reason, "message": message}
        pod["status"]["containerStatuses"] = [_container(pod, state)]
        self._touch(pod)
        self.act()

    def finish(self, name: str) -> None:
        """A worker that was asked to end has drained."""
        self.busy.discard(name)
        if "deletionTimestamp" in self.pods[name]["metadata"]:
            del self.pods[name]

    def environment(self, name: str) -> dict[str, str]:
        """The variables its worker sees."""
        (container,) = self.pods[name]["spec"]["containers"]
        fields = {"metadata.name": name}
        texts: dict[str, str] = {}
        for variable in container["env"]:
            source = variable.get("valueFrom")
            text = fields[source["fieldRef"]["fieldPath"]] if source else variable["value"]
            texts[variable["name"]] = re.sub(r"\$\$|\$\((\w+)\)", lambda found: _expanded(found, texts), text)
        return texts

    def live(self) -> set[str]:
        """Pods that have not been asked to end."""
        return {name for name, pod in self.pods.items() if _active(pod)}

    async def has_been_asked(self, call: str, times: int) -> None:
        """Return once this was asked so often, such as `list pods`."""
        async with self._asked:
            await self._asked.wait_for(lambda: self.calls.count(call) >= times)

    def _roll(self, deployment: Json) -> None:
        if self.rolling:
            for name, pod in self._of(deployment):
                if pod["metadata"]["labels"]["pod-template-hash"] != _hash(deployment):
                    self._create(deployment)
                    self.end(name, None)

    def _reconcile(self, deployment: Json) -> None:
        there, wanted = self._of(deployment), deployment["spec"]["replicas"]
        for _ in range(wanted - len(there)):
            if self.quota is None or len(self.pods) < self.quota:
                self._create(deployment)
        on_node = [pod["spec"].get("nodeName", "") for _, pod in there]
        there.sort(key=lambda one: _rank(one[1], on_node))
        for name, _ in there[: max(0, len(there) - wanted)]:
            self.end(name, None)

    def _tell(self, deployment: Json) -> None:
        there = self._of(deployment)
        updated = [pod for _, pod in there if pod["metadata"]["labels"]["pod-template-hash"] == _hash(deployment)]
        status = {"observedGeneration": deployment["metadata"]["generation"], "replicas": len(there)}
        status |= {"updatedReplicas": len(updated), "conditions": []}
        if len(there) < deployment["spec"]["replicas"]:
            status["conditions"] = [
                {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
            ]
        deployment["status"] = status

    def _of(self, deployment: Json) -> list[tuple[str, Json]]:
        labels = deployment["spec"]["selector"]["matchLabels"]
        return [(name, pod) for name, pod in self.pods.items() if _active(pod) and _has(pod, labels)]

    def _create(self, deployment: Json) -> None:
        template, digest = deepcopy(deployment["spec"]["template"]), _hash(deployment)
        name = f"{deployment['metadata']['name']}-{digest}-{secrets.token_hex(3)[:5]}"
        self._born += 1
        template["metadata"]["labels"]["pod-template-hash"] = digest
        metadata = {**template["metadata"], "name": name, "namespace": NAMESPACE, "creationTimestamp": _now()}
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": template["spec"], "born": self._born}
        self.pods[name] = pod
        self._schedule(name, pod)

    def _schedule(self, name: str, pod: Json) -> None:
        (container,) = pod["spec"]["containers"]
        pod["status"] = {"phase": "Pending"}
        if container["image"] in self.missing_images:
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}
            pod["spec"]["nodeName"] = NODES[0]
            pod["status"]["containerStatuses"] = [_container(pod, {"waiting": waiting})]
        elif self.scheduling:
            self.become_ready(name)
        self._touch(pod)

    def end(self, name: str, grace: int | None) -> None:
        """Ask a pod to end, or to end sooner."""
        metadata, spec = self.pods[name]["metadata"], self.pods[name]["spec"]
        period = spec.get("terminationGracePeriodSeconds", 30) if grace is None else grace
        metadata.setdefault("deletionTimestamp", _now())
        # It may be shortened, never prolonged.
        metadata["deletionGracePeriodSeconds"] = min(period, metadata.get("deletionGracePeriodSeconds", period))
        self._touch(self.pods[name])
        if name in self.busy:
            self.disturbed.add(name)
        else:
            del self.pods[name]

    def _touch(self, thing: Json) -> None:
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)

    # -- what it answers

    async def _post_deployment(self, request: Request) -> Json:
        body = _strictly(await request.json())
        name = body["metadata"]["name"]
        if name in self.deployments:
            raise Refusal(409, "AlreadyExists", f'deployments.apps "{name}" already exists')
        if not _has(body["spec"]["template"], body["spec"]["selector"]["matchLabels"]):
            raise Refusal(422, "Invalid", "`selector` does not match template `labels`")
        body["metadata"]["generation"] = 1
        body["spec"].setdefault("replicas", 1)
        self.deployments[name] = body
        self._touch(body)
        self.act()
        return body

    async def _get_deployment(self, request: Request) -> Json:
        return self._deployment(request)

    async def _patch_deployment(self, request: Request) -> Json:
        if request.headers["content-type"] != "application/json-patch+json":
            raise Refusal(415, "UnsupportedMediaType", "only JSON patches")
        deployment = self._deployment(request)
        for operation in await request.json():
            _operate(deployment, operation)
        _strictly(deployment)
        self._generation(deployment)
        return deployment

    async def _get_scale(self, request: Request) -> Json:
        return _scale(self._deployment(request))

    async def _put_scale(self, request: Request) -> Json:
        body = Scale.from_dict(await request.json()).to_dict()
        deployment = self._deployment(request)
        if self.racing:
            self.racing.pop(0)()
        if body["metadata"].get("resourceVersion") not in {None, deployment["metadata"]["resourceVersion"]}:
            raise Refusal(409, "Conflict", "the object has been modified; please apply your changes to the latest")
        self.set_replicas(deployment, body.get("spec", {}).get("replicas", 0))
        return _scale(deployment)

    def set_replicas(self, deployment: Json, replicas: int) -> None:
        deployment["spec"]["replicas"] = replicas
        self._generation(deployment)

    def _generation(self, deployment: Json) -> None:
        deployment["metadata"]["generation"] += 1
        self._touch(deployment)
        self.act()

    async def _list_pods(self, request: Request) -> Json:
        asked = request.query_params.get("labelSelector", "")
        labels = dict(pair.split("=", 1) for pair in asked.split(",") if pair)
        items = [pod for pod in self.pods.values() if _has(pod, labels)]
        metadata = {"resourceVersion": str(self._version)}
        return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}

    async def _patch_pod(self, request: Request) -> Json:
        if request.headers["content-type"] != "application/merge-patch+json":
            raise Refusal(415, "UnsupportedMediaType", "only merge patches")
        pod, change = self._pod(request), await request.json()
        annotations = pod["metadata"].setdefault("annotations", {})
        for key, value in change["metadata"]["annotations"].items():
            annotations.pop(key, None)
            if value is not None:
                annotations[key] = value
        self._touch(pod)
        return pod

    async def _delete_pod(self, request: Request) -> Json:
        pod = self._pod(request)
        grace = request.query_params.get("gracePeriodSeconds")
        self.end(pod["metadata"]["name"], None if grace is None else int(grace))
        self.act()
        return pod

    def _deployment(self, request: Request) -> Json:
        return _found(self.deployments, request, "deployments.apps")

    def _pod(self, request: Request) -> Json:
        return _found(self.pods, request, "pods")

    def _may(self, request: Request, resource: str) -> None:
        listing = "name" not in request.path_params
        verb = VERBS.get(request.method) or ("list" if listing else "get")
        self.calls.append(f"{verb} {resource}")
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if request.path_params["namespace"] != NAMESPACE:
            raise Refusal(404, "NotFound", f'namespaces "{request.path_params["namespace"]}" not found')
        if not any(resource in rule["resources"] and verb in rule["verbs"] for rule in self.rules):
            raise Refusal(403, "Forbidden", f'cannot {verb} resource "{resource}" in namespace "{NAMESPACE}"')

    def _route(self, path: str, resource: str, **answers: Callable[[Request], Awaitable[Json]]) -> Route:
        async def answer(request: Request) -> Response:
            if self.silent:
                await self._closing.wait()
            try:
                self._may(request, resource)
                return JSONResponse(await answers[request.method](request))
            except Refusal as error:
                return JSONResponse(error.status, error.code)
            finally:
                async with self._asked:
                    self._asked.notify_all()

        return Route(path, answer, methods=list(answers))

    def _app(self) -> Starlette:
        deployments, pods = "/apis/apps/v1/namespaces/{namespace}/deployments", "/api/v1/namespaces/{namespace}/pods"
        one, scale = f"{deployments}/{{name}}", f"{deployments}/{{name}}/scale"
        return Starlette(
            routes=[
                self._route(deployments, "deployments", POST=self._post_deployment),
                self._route(one, "deployments", GET=self._get_deployment, PATCH=self._patch_deployment),
                self._route(scale, "deployments/scale", GET=self._get_scale, PUT=self._put_scale),
                self._route(pods, "pods", GET=self._list_pods),
                self._route(f"{pods}/{{name}}", "pods", PATCH=self._patch_pod, DELETE=self._delete_pod),
            ]
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["KubernetesServer"]:
        listener = socket.create_server(("127.0.0.1", 0))
        # asyncio does this only for sockets that say they are TCP; without it each answer takes 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = _Quiet(uvicorn.Config(self._app(), log_config=None, lifespan="off"))
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            yield self
        finally:
            self._closing.set()
            server.should_exit = True
            await serving
            listener.close()


class _Quiet(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _rank(pod: Json, on_node: Sequence[str]) -> tuple[Any, ...]:
    """The order in which a ReplicaSet lets go of pods: an unready one goes before one that costs less."""
    node, status, metadata = pod["spec"].get("nodeName", ""), pod["status"], pod["metadata"]
    cost = int(metadata.get("annotations", {}).get(COST, "0"))
    restarts = max((one["restartCount"] for one in status.get("containerStatuses", [])), default=0)
    return bool(node), PHASES[status["phase"]], _ready(pod), cost, -on_node.count(node), -restarts, -pod["born"]


def _ready(pod: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def _active(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] not in {"Succeeded", "Failed"}


def _has(thing: Json, labels: Mapping[str, str]) -> bool:
    own: dict[str, str] = thing["metadata"].get("labels", {})
    return labels.items() <= own.items()


def _hash(deployment: Json) -> str:
    text = json.dumps(deployment["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _container(pod: Json, state: Json, *, ready: bool = False) -> Json:
    (container,) = pod["spec"]["containers"]
    known = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
    return {**known, "ready": ready, "state": state}


def _scale(deployment: Json) -> Json:
    metadata = {key: deployment["metadata"][key] for key in ("name", "resourceVersion")}
    replicas = deployment["spec"]["replicas"]
    # As the real one: an int that is 0 is left out.
    spec = {"replicas": replicas} if replicas else {}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec}


def _strictly(body: Json) -> Json:
    """Refuse what the models do not know, as a cluster does under strict validation."""
    known = Deployment.from_dict(body).to_dict()
    if known != body:
        raise Refusal(400, "BadRequest", f"strict decoding error: {body} is not {known}")
    return body


def _operate(thing: Json, operation: Json) -> None:
    """One operation of a JSON patch, in place."""
    *path, last = (step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:])
    for step in path:
        thing = thing[step]
    if operation["op"] not in {"add", "replace"} or (operation["op"] == "replace" and last not in thing):
        raise Refusal(422, "Invalid", f"cannot {operation['op']} {operation['path']}")
    thing[last] = operation["value"]


def _found(things: dict[str, Json], request: Request, kind: str) -> Json:
    name = request.path_params["name"]
    if name not in things:
        raise Refusal(404, "NotFound", f'{kind} "{name}" not found')
    return things[name]


def _expanded(found: re.Match[str], texts: Mapping[str, str]) -> str:
    if found[0] == "$$":
        return "$"
    return texts.get(found[1], found[0])


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
