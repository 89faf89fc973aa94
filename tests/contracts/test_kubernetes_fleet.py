"""Fleets on Kubernetes, against the API server of `tests.kubernetes_server`, with the rights that `deploy/` gives."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

if "CI" not in os.environ:
    pytest.importorskip("lightkube")

from lightkube.config.kubeconfig import KubeConfig

from penstock.autoscaler.backends import MEMBER, Condition, FleetMember, LaunchSpec
from penstock.autoscaler.backends.kubernetes import KubernetesFleets, PodDefaults
from penstock.autoscaler.backends.kubernetes.workload import deployment_name, slug
from penstock.model.clock import SystemClock
from penstock.model.errors import FleetUnavailable
from penstock.model.names import Name
from servers.launch import free_port
from tests.kubernetes_server import COST, KubernetesServer

ROOT = Path(__file__).parents[2]
FLEET = "thumbs"
DEPLOYMENT = f"penstock-fleet-{FLEET}"
ORDER = LaunchSpec(
    fleet=FLEET,
    app="shop.jobs:app",
    queues=("thumbnail", "resize"),
    capacity=4,
    image="shop:1",
    environment={"PENSTOCK_WORKER_URL": "http://api", "SECRET": "pa$$(MEMBER)word"},
    cpus=0.5,
    memory_mib=256,
)
NO_PATIENCE = timedelta(milliseconds=1)


def shipped_rules() -> list[dict[str, Any]]:
    documents = yaml.safe_load_all((ROOT / "deploy/kubernetes/rbac.yaml").read_text())
    (role,) = (one for one in documents if one["kind"] == "Role")
    rules: list[dict[str, Any]] = role["rules"]
    return rules


@pytest.fixture
async def server() -> AsyncIterator[KubernetesServer]:
    async with KubernetesServer(shipped_rules()).running() as running:
        yield running


@pytest.fixture
async def fleets(server: KubernetesServer) -> AsyncIterator[KubernetesFleets]:
    opened = opened_on(server)
    yield opened
    await opened.close()


def opened_on(server: KubernetesServer, **how: Any) -> KubernetesFleets:
    return KubernetesFleets(SystemClock(), **{"config": server.config(), **how})


def replicas(server: KubernetesServer) -> int:
    found: int = server.deployments[DEPLOYMENT]["spec"]["replicas"]
    return found


async def by_name(fleets: KubernetesFleets, fleet: str = FLEET) -> dict[str, FleetMember]:
    return {member.name: member for member in await fleets.members(fleet)}


def marks(server: KubernetesServer) -> set[str]:
    return {name for name, pod in server.pods.items() if COST in pod["metadata"].get("annotations", {})}


async def test_a_fleet_goes_from_none_to_three_and_back(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    assert await fleets.members(FLEET) == []
    names = await fleets.start(ORDER, 3)
    assert len(set(names)) == 3
    members = await by_name(fleets)
    assert sorted(members) == sorted(names)
    assert {member.condition for member in members.values()} == {Condition.RUNNING}
    await fleets.stop(FLEET, names)
    assert await fleets.members(FLEET) == []
    assert replicas(server) == 0


async def test_more_are_started_beside_those_that_run(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    first = await fleets.start(ORDER, 2)
    second = await fleets.start(ORDER, 3)
    assert len(second) == 3
    assert not set(first) & set(second)
    assert server.live() == {*first, *second}


async def test_a_worker_is_told_its_name_and_what_the_order_says(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    (name,) = await fleets.start(ORDER, 1)
    environment = server.environment(name)
    assert environment[MEMBER] == name
    assert msgspec.convert(name, Name) == name
    assert environment["PENSTOCK_WORKER_QUEUES"].split() == ["thumbnail", "resize"]
    assert environment["PENSTOCK_WORKER_CAPACITY"] == "4"
    assert environment["PENSTOCK_WORKER_EXECUTORS"] == "1"
    assert environment["SECRET"] == "pa$$(MEMBER)word"
    (container,) = server.pods[name]["spec"]["containers"]
    assert container["image"] == "shop:1"
    assert container["command"] == ["penstock", "worker", "shop.jobs:app"]
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "256Mi"}


async def test_a_pod_is_given_longer_to_end_than_its_worker_takes_to_drain(server: KubernetesServer) -> None:
    fleets = opened_on(server, around=PodDefaults(drain=timedelta(minutes=10)))
    (name,) = await fleets.start(ORDER, 1)
    assert float(server.environment(name)["PENSTOCK_WORKER_DRAIN_SECONDS"]) == 600
    assert server.pods[name]["spec"]["terminationGracePeriodSeconds"] > 600
    await fleets.close()


async def test_what_holds_for_all_pods_is_in_each(server: KubernetesServer) -> None:
    around = PodDefaults(
        image="default:2", secrets=("keys",), pull_secrets=("registry",), node_selector={"pool": "work"}
    )
    fleets = opened_on(server, around=around)
    (name,) = await fleets.start(msgspec.structs.replace(ORDER, image=None, command=("run", "$HOME")), 1)
    spec = server.pods[name]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == "default:2"
    assert container["command"] == ["run", "$$HOME"]
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["nodeSelector"] == {"pool": "work"}
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
    await fleets.close()


async def test_a_fleet_without_an_image_is_told_so(fleets: KubernetesFleets) -> None:
    with pytest.raises(FleetUnavailable, match="image"):
        await fleets.start(msgspec.structs.replace(ORDER, image=None), 1)


@pytest.mark.parametrize("newest_is_busy", [True, False])
async def test_idle_pods_go_and_busy_ones_never(
    server: KubernetesServer, fleets: KubernetesFleets, newest_is_busy: bool
) -> None:
    names = [name for _ in range(4) for name in await fleets.start(ORDER, 1)]
    busy, idle = (names[2:], names[:2]) if newest_is_busy else (names[:2], names[2:])
    server.busy |= set(busy)
    await fleets.stop(FLEET, idle)
    assert server.live() == set(busy)
    assert not server.disturbed
    assert replicas(server) == 2


async def test_idle_pods_go_also_when_the_cluster_takes_its_time(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    first, *rest = await fleets.start(ORDER, 3)
    server.busy |= set(rest)
    server.acting = False
    await fleets.stop(FLEET, [first])
    server.acting = True
    server.act()
    assert server.live() == set(rest)
    assert not server.disturbed


async def test_a_named_pod_goes_although_the_cluster_prefers_one_that_starts(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    first, busy = await fleets.start(ORDER, 2)
    server.busy.add(busy)
    server.scheduling = False
    await fleets.start(ORDER, 1)
    await fleets.stop(FLEET, [first])
    assert first not in server.pods
    assert busy in server.live()
    assert len(server.live()) == replicas(server) == 2


async def test_nothing_is_scaled_in_while_a_busy_pod_might_go_instead(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    idle, busy = await fleets.start(ORDER, 2)
    server.become_unready(busy)
    with pytest.raises(FleetUnavailable, match=f"{busy}.*not ready"):
        await fleets.stop(FLEET, [idle])
    assert server.live() == {idle, busy}
    assert not marks(server)
    await fleets.stop(FLEET, [idle, busy])
    assert not server.live()


async def test_a_stop_with_patience_goes_ahead_all_the_same_and_ends_no_other(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    late, busy = await fleets.start(ORDER, 2)
    server.busy.add(busy)
    server.become_unready(busy)
    server.scheduling = False
    await fleets.stop(FLEET, [late], timedelta(seconds=5))
    assert server.live() == {busy}
    assert not server.disturbed
    assert replicas(server) == 1


async def test_stopping_twice_stops_once(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    first, *rest = await fleets.start(ORDER, 3)
    server.busy.add(first)
    await fleets.stop(FLEET, [first])
    await fleets.stop(FLEET, [first, "nobody"])
    assert server.live() == set(rest)
    assert replicas(server) == 2
    assert (await by_name(fleets))[first].condition is Condition.ENDING
    server.finish(first)
    await fleets.stop(FLEET, [first])
    assert sorted(await by_name(fleets)) == sorted(rest)


async def test_patience_is_the_time_a_pod_has_and_may_be_shortened(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    (name,) = await fleets.start(ORDER, 1)
    server.busy.add(name)
    metadata = server.pods[name]["metadata"]
    await fleets.stop(FLEET, [name])
    assert metadata["deletionGracePeriodSeconds"] == 3660
    await fleets.stop(FLEET, [name], timedelta(seconds=30))
    assert metadata["deletionGracePeriodSeconds"] == 30
    await fleets.stop(FLEET, [name], NO_PATIENCE)
    assert metadata["deletionGracePeriodSeconds"] == 1, "0 would forget a pod that may still run"
    assert replicas(server) == 0


async def test_a_stop_that_was_cut_short_marks_nobody_for_later(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    """It had marked a pod, which has become busy since; now another one is to go."""
    marked, idle = await fleets.start(ORDER, 2)
    rights, server.rules = server.rules, [one for one in server.rules if "deployments/scale" not in one["resources"]]
    with pytest.raises(FleetUnavailable):
        await fleets.stop(FLEET, [marked])
    server.rules = rights
    assert marks(server) == {marked}
    server.busy.add(marked)
    await fleets.stop(FLEET, [idle])
    assert server.live() == {marked}
    assert not marks(server) | server.disturbed


async def test_a_second_stop_does_not_undo_the_first_that_the_cluster_has_yet_to_act_on(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    first, second, busy = await fleets.start(ORDER, 3)
    server.busy.add(busy)
    server.acting = False
    rights, server.rules = server.rules, [{**one, "verbs": set(one["verbs"]) - {"delete"}} for one in server.rules]
    with pytest.raises(FleetUnavailable):
        await fleets.stop(FLEET, [first])
    server.rules = rights
    await fleets.stop(FLEET, [second])
    server.acting = True
    server.act()
    assert server.live() == {busy}
    assert not server.disturbed
    assert replicas(server) == 1


async def test_a_conflict_is_met_by_reading_again(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    await fleets.start(ORDER, 1)
    server.racing = [lambda: server.set_replicas(server.deployments[DEPLOYMENT], 1)] * 3
    assert len(await fleets.start(ORDER, 2)) == 2
    assert replicas(server) == len(server.live()) == 3
    assert not server.racing


async def test_who_is_overtaken_all_the_time_gives_up(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    server.racing = [lambda: server.set_replicas(server.deployments[DEPLOYMENT], 0)] * 100
    with pytest.raises(FleetUnavailable, match="changed by others"):
        await fleets.start(ORDER, 2)


async def test_a_pod_whose_image_cannot_be_pulled_says_so(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    server.missing_images.add("shop:1")
    (name,) = await fleets.start(ORDER, 1)
    member = (await by_name(fleets))[name]
    assert member.condition is Condition.STARTING
    assert "ImagePullBackOff" in member.detail
    assert "shop:1" in member.detail


async def test_a_pod_that_was_out_of_memory_says_so(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    (name,) = await fleets.start(ORDER, 1)
    server.restart(name, "OOMKilled", 137)
    member = (await by_name(fleets))[name]
    assert member.condition is Condition.RUNNING
    assert "restarted 1 times" in member.detail
    assert "OOMKilled (exit status 137)" in member.detail


async def test_a_pod_that_failed_is_told_of_once_and_replaced(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    (name,) = await fleets.start(ORDER, 1)
    server.fail(name, "Evicted", "The node was low on memory.", 143)
    told = (await by_name(fleets))[name]
    assert (told.condition, told.exit_status) == (Condition.ENDED, 143)
    assert "Evicted: The node was low on memory." in told.detail
    (other,) = await by_name(fleets)
    assert other != name


async def test_a_pod_that_does_not_run_yet_is_starting(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    server.scheduling = False
    (name,) = await fleets.start(ORDER, 1)
    assert (await by_name(fleets))[name].condition is Condition.STARTING
    server.become_ready(name)
    assert (await by_name(fleets))[name].condition is Condition.RUNNING


async def test_another_autoscaler_finds_what_runs_and_can_stop_it(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    names = await fleets.start(ORDER, 3)
    await fleets.close()
    assert server.live() == set(names)
    later = opened_on(server)
    assert sorted(await by_name(later)) == sorted(names)
    await later.stop(FLEET, names[:1])
    assert server.live() == set(names[1:])
    assert len(await later.start(ORDER, 1)) == 1
    assert len(server.live()) == 3
    await later.close()


async def test_fleets_and_systems_do_not_see_each_other(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    other = opened_on(server, system="staging")
    ours, theirs = await fleets.start(ORDER, 2), await other.start(ORDER, 1)
    beside = await fleets.start(msgspec.structs.replace(ORDER, fleet="mail"), 1)
    assert sorted(await by_name(fleets)) == sorted(ours)
    assert sorted(await by_name(other)) == theirs
    assert sorted(await by_name(fleets, "mail")) == beside
    await other.stop(FLEET, ours)
    assert server.live() == {*ours, *theirs, *beside}
    await other.close()


async def test_the_same_order_replaces_nothing(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    names = await fleets.start(ORDER, 1)
    server.calls.clear()
    await fleets.start(ORDER, 1)
    assert "patch deployments" not in server.calls
    assert set(names) < server.live()


async def test_a_deployment_of_somebody_else_is_left_alone(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    await fleets.start(ORDER, 1)
    server.deployments[DEPLOYMENT]["metadata"]["labels"] = {"app": "theirs"}
    server.calls.clear()
    with pytest.raises(FleetUnavailable, match="not a fleet's"):
        await fleets.start(msgspec.structs.replace(ORDER, image="shop:2"), 1)
    assert server.calls == ["get deployments"]


async def test_a_changed_order_replaces_pods_and_the_busy_drain(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    old = await fleets.start(ORDER, 2)
    server.busy |= set(old)
    changed = msgspec.structs.replace(ORDER, image="shop:2", cpus=None)
    await fleets.start(changed, 1)
    assert len(server.live()) == 3
    (image,) = {server.pods[name]["spec"]["containers"][0]["image"] for name in server.live()}
    assert image == "shop:2"
    limits = {str(server.pods[name]["spec"]["containers"][0]["resources"]) for name in server.live()}
    assert limits == {"{'limits': {'memory': '256Mi'}}"}
    members = await by_name(fleets)
    assert {members[name].condition for name in old} == {Condition.ENDING}


async def test_nothing_is_scaled_in_while_a_changed_order_is_rolled_out(
    server: KubernetesServer, fleets: KubernetesFleets
) -> None:
    server.rolling = False
    (old,) = await fleets.start(ORDER, 1)
    (new,) = await fleets.start(msgspec.structs.replace(ORDER, image="shop:2"), 1)
    with pytest.raises(FleetUnavailable, match="rolled out"):
        await fleets.stop(FLEET, [new])
    assert server.live() == {old, new}


async def test_pods_that_a_quota_holds_back_are_asked_for_once(server: KubernetesServer) -> None:
    fleets = opened_on(server, appear_within=timedelta(0))
    server.quota = 1
    assert len(await fleets.start(ORDER, 3)) == 1
    assert await fleets.start(ORDER, 2) == []
    assert replicas(server) == 3
    await fleets.start(ORDER, 4)
    assert replicas(server) == 5
    await fleets.stop(FLEET, list(await by_name(fleets)))
    assert replicas(server) == 0
    await fleets.close()


async def test_a_start_waits_for_its_pods_to_appear(server: KubernetesServer, fleets: KubernetesFleets) -> None:
    server.acting = False
    starting = asyncio.ensure_future(fleets.start(ORDER, 2))
    await server.has_been_asked("list pods", 3)
    assert not starting.done()
    server.acting = True
    server.act()
    assert set(await starting) == server.live()


async def test_a_server_that_is_not_there_is_unavailable(server: KubernetesServer) -> None:
    server.url = f"http://127.0.0.1:{free_port()}"
    fleets = opened_on(server)
    for call in (fleets.members, lambda _: fleets.start(ORDER, 1), lambda fleet: fleets.stop(fleet, ["one"])):
        with pytest.raises(FleetUnavailable, match="can be reached"):
            await call(FLEET)
    await fleets.close()


async def test_a_server_that_does_not_answer_is_unavailable(server: KubernetesServer) -> None:
    fleets = opened_on(server, call_within=timedelta(milliseconds=100))
    server.silent = True
    with pytest.raises(FleetUnavailable):
        await fleets.members(FLEET)
    await fleets.close()


async def test_who_shows_a_token_that_is_not_known_is_told_what_to_do(server: KubernetesServer) -> None:
    fleets = opened_on(server, config=server.config("stale"))
    with pytest.raises(FleetUnavailable, match=r"token.*service account.*401"):
        await fleets.members(FLEET)
    await fleets.close()


async def test_a_namespace_that_is_not_there_is_told_of(server: KubernetesServer) -> None:
    fleets = opened_on(server, namespace="nowhere")
    with pytest.raises(FleetUnavailable, match=r"namespace exists.*404"):
        await fleets.start(ORDER, 1)
    await fleets.close()


async def test_a_configuration_without_a_user_is_told_of(server: KubernetesServer) -> None:
    fleets = opened_on(server, config=KubeConfig.from_server(server.url))
    with pytest.raises(FleetUnavailable, match="Missing user"):
        await fleets.members(FLEET)
    await fleets.close()


async def test_without_any_configuration_it_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    monkeypatch.setenv("HOME", str(tmp_path))
    fleets = KubernetesFleets(SystemClock())
    with pytest.raises(FleetUnavailable, match="KUBECONFIG"):
        await fleets.members(FLEET)
    await fleets.close()


RIGHTS = [(rule["resources"][0], verb) for rule in shipped_rules() for verb in rule["verbs"]]


@pytest.mark.parametrize(("resource", "verb"), RIGHTS)
async def test_every_right_that_deploy_gives_is_needed(resource: str, verb: str) -> None:
    rules = [
        {**one, "verbs": set(one["verbs"]) - {verb}} if resource in one["resources"] else one for one in shipped_rules()
    ]
    async with KubernetesServer(rules).running() as server:
        fleets = opened_on(server)
        with pytest.raises(FleetUnavailable, match=r"rbac\.yaml.*403"):
            await a_life(fleets)
        await fleets.close()


async def a_life(fleets: KubernetesFleets) -> None:
    names = await fleets.start(ORDER, 2)
    await fleets.start(msgspec.structs.replace(ORDER, image="shop:2"), 1)
    await fleets.stop(FLEET, [*names, *await by_name(fleets)])


@pytest.mark.parametrize("fleet", ["a", "default", "Image.Resize", "image-resize", "image_resize:2", "x" * 128, "-a"])
def test_the_names_of_fleets_become_names_that_kubernetes_takes(fleet: str) -> None:
    name = deployment_name("penstock", fleet)
    assert len(f"{name}-0123456789-01234") <= 63
    assert all(letter.isdigit() or letter in "abcdefghijklmnopqrstuvwxyz-" for letter in name)
    assert name[-1] != "-"


@pytest.mark.parametrize("fleet", ["api", "scheduler", "autoscaler", "worker"])
def test_a_fleet_may_be_called_as_a_role_is(fleet: str) -> None:
    shipped = [
        one for file in (ROOT / "deploy/kubernetes").glob("*.yaml") for one in yaml.safe_load_all(file.read_text())
    ]
    assert deployment_name("penstock", fleet) not in {one["metadata"]["name"] for one in shipped}


def test_fleets_with_names_alike_are_kept_apart() -> None:
    alike = ["image-resize", "Image-Resize", "image.resize", "image_resize", "x" * 128, "x" * 127]
    assert len({slug(fleet) for fleet in alike}) == len(alike)
