"""A pod as a member of its fleet. Pure."""

from typing import Final

from lightkube.models.core_v1 import ContainerState, ContainerStateTerminated, ContainerStatus
from lightkube.resources.core_v1 import Pod

from penstock.autoscaler.backends.kubernetes.workload import CONTAINER, ORDER
from penstock.autoscaler.backends.seam import Condition, FleetMember
from penstock.model.clock import EPOCH

COST: Final = "controller.kubernetes.io/pod-deletion-cost"
LEAST_COST: Final = "-2147483647"
"""Of equally ready pods of one ReplicaSet, those that cost least go first; one that says nothing costs 0."""

OVER: Final = frozenset({"Succeeded", "Failed"})


def member(pod: Pod) -> FleetMember:
    """What the cluster says about a pod; `detail` tells why it does not run, or what happened to it before."""
    condition = _condition(pod)
    terminated = _state(pod).terminated if condition is Condition.ENDED else None
    return FleetMember(
        name=name_of(pod),
        condition=condition,
        started_at=(pod.metadata.creationTimestamp if pod.metadata else None) or EPOCH,
        exit_status=terminated.exitCode if terminated else None,
        detail=_detail(pod),
    )


def name_of(pod: Pod) -> str:
    return (pod.metadata.name if pod.metadata else None) or ""


def active(pod: Pod) -> bool:
    """Whether it counts towards its Deployment's replicas."""
    return _condition(pod) not in {Condition.ENDING, Condition.ENDED}


def marked(pod: Pod) -> bool:
    """Whether an earlier stop chose it to go."""
    return _annotations(pod).get(COST) == LEAST_COST


def made_as(pod: Pod) -> str | None:
    """The digest of the spec it was made for."""
    return _annotations(pod).get(ORDER)


def in_danger(pod: Pod) -> bool:
    """Whether it may be busy and yet goes before any marked pod: what is not ready is first, whatever it costs."""
    return _condition(pod) is Condition.RUNNING and not _ready(pod)


def _condition(pod: Pod) -> Condition:
    if pod.metadata and pod.metadata.deletionTimestamp is not None:
        return Condition.ENDING
    if _phase(pod) in OVER:
        return Condition.ENDED
    # A node that does not answer may still run it.
    return Condition.RUNNING if _state(pod).running or _phase(pod) == "Unknown" else Condition.STARTING


def _annotations(pod: Pod) -> dict[str, str]:
    return (pod.metadata.annotations if pod.metadata else None) or {}


def _phase(pod: Pod) -> str:
    return (pod.status.phase if pod.status else None) or "Pending"


def _ready(pod: Pod) -> bool:
    conditions = (pod.status.conditions if pod.status else None) or []
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


def _container(pod: Pod) -> ContainerStatus | None:
    found = (pod.status.containerStatuses if pod.status else None) or []
    return next((one for one in found if one.name == CONTAINER), None)


def _state(pod: Pod) -> ContainerState:
    container = _container(pod)
    return (container.state if container else None) or ContainerState()


def _detail(pod: Pod) -> str:
    details = (_pod_status(pod), _waiting(pod), _past(pod), _unscheduled(pod), _image(pod), _node(pod))
    return "; ".join(text for text in details if text)


def _pod_status(pod: Pod) -> str:
    """What the cluster did to the whole pod: `Evicted`, `NodeLost`."""
    status = pod.status
    return _with_message(status.reason, status.message) if status and status.reason else ""


def _waiting(pod: Pod) -> str:
    waiting = _state(pod).waiting
    return _with_message(waiting.reason, waiting.message) if waiting and waiting.reason else ""


def _past(pod: Pod) -> str:
    """How its container ended, now or the last time."""
    container, state = _container(pod), _state(pod)
    if state.terminated:
        return _how(state.terminated)
    last = container.lastState.terminated if container and container.lastState else None
    return f"restarted {container.restartCount} times, last because of: {_how(last)}" if container and last else ""


def _unscheduled(pod: Pod) -> str:
    conditions = (pod.status.conditions if pod.status else None) or []
    faults = [one for one in conditions if one.type == "PodScheduled" and one.status == "False"]
    return _with_message(faults[0].reason or "Unschedulable", faults[0].message) if faults else ""


def _image(pod: Pod) -> str:
    containers = (pod.spec.containers if pod.spec else None) or []
    return next((f"image {one.image}" for one in containers if one.name == CONTAINER), "")


def _node(pod: Pod) -> str:
    return f"node {pod.spec.nodeName}" if pod.spec and pod.spec.nodeName else ""


def _how(terminated: ContainerStateTerminated) -> str:
    return f"{_with_message(terminated.reason or 'ended', terminated.message)} (exit status {terminated.exitCode})"


def _with_message(reason: str | None, message: str | None) -> str:
    return f"{reason}: {message}" if message else f"{reason}"
