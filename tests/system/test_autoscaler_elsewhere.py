"""An autoscaler whose workers run elsewhere: what it makes known of its app, and what it says where it has none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import Valkey
from tests import postgres
from tests.servers_fixtures import real_servers
from tests.system.harness import APP, Process, ending

pytestmark = pytest.mark.slow

DATABASE = "elsewhere"
DECLARED = "SELECT name FROM penstock.notices WHERE kind = 'type'"


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    url = postgres.server(18).database(DATABASE)
    with real_servers() as folder, Valkey(folder / "valkey") as valkey:
        yield {
            "PENSTOCK_STORE_URL": url,
            "PENSTOCK_BROKER_URL": valkey.url,
            "PENSTOCK_SERVER_DATA": str(tmp_path / "data"),
            "PENSTOCK_FLEET_BACKEND": "containers",
            "PENSTOCK_FLEET_ENGINE": f"unix://{tmp_path}/none.sock",
        }


def test_types_are_known_before_there_is_a_worker_if_the_app_is_installed_beside_the_autoscaler(
    environ: dict[str, str], tmp_path: Path
) -> None:
    autoscaler = Process("autoscaler", APP, folder=tmp_path, environ=environ)
    with ending(autoscaler):
        autoscaler.says("autoscaler ready")
        assert "hold" in postgres.server(18).run(DECLARED, DATABASE).splitlines()


def test_an_app_that_is_only_in_the_image_is_known_once_a_worker_has_joined(
    environ: dict[str, str], tmp_path: Path
) -> None:
    autoscaler = Process("autoscaler", "only_in_the_image:app", folder=tmp_path, environ=environ)
    with ending(autoscaler):
        assert "are known once a worker has joined" in autoscaler.says("only_in_the_image")
        autoscaler.says("autoscaler ready")
