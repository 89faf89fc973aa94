"""The metrics of processes that are no API: where they are told, and to whom."""

import logging
import re
from pathlib import Path

import httpx2
import pytest

from penstock.config import MetricsSettings, ServerSettings, Settings
from penstock.model.errors import InvalidSetting
from penstock.runtime import open_engine
from penstock.runtime.metrics_server import serve_metrics, with_metrics_address


def settings(folder: Path, address: str) -> Settings:
    """As behind a proxy, where every API needs keys."""
    server = ServerSettings(data=str(folder), host="127.0.0.1", keys="required")
    return with_metrics_address(Settings(server=server, metrics=MetricsSettings(address=address)))


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
async def test_on_this_machine_metrics_need_no_key(
    tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.metrics")
    async with open_engine(settings(tmp_path, address)) as engine, serve_metrics(engine):
        (url,) = re.findall(r"metrics at (\S+)", caplog.text)
        async with httpx2.AsyncClient() as client:
            answer = await client.get(url)
            elsewhere = await client.get(url.replace("/metrics", "/v1/jobs"))
    assert (answer.status_code, elsewhere.status_code) == (200, 404)
    assert 'penstock_shard_up{shard="0"} 1' in answer.text.splitlines()


async def test_an_address_beyond_this_machine_is_refused_without_an_admin_key(tmp_path: Path) -> None:
    async with open_engine(settings(tmp_path, "0.0.0.0:0")) as engine:
        with pytest.raises(InvalidSetting, match=r"metrics\.address: '0\.0\.0\.0' is not a loopback address"):
            async with serve_metrics(engine):
                pass


async def test_a_taken_port_names_the_setting_and_the_flag(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.metrics")
    async with open_engine(settings(tmp_path / "a", "127.0.0.1:0")) as engine, serve_metrics(engine):
        (taken,) = re.findall(r"metrics at http://(\S+)/metrics", caplog.text)
        async with open_engine(settings(tmp_path / "b", taken)) as other:
            with pytest.raises(InvalidSetting, match=r"metrics\.address: cannot listen on .*--metrics-port"):
                async with serve_metrics(other):
                    pass


async def test_without_an_address_nothing_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.metrics")
    async with open_engine(settings(tmp_path, "")) as engine, serve_metrics(engine):
        assert "metrics at" not in caplog.text
