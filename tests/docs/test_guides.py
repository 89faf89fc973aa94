"""The commands of the pages are run, as a reader would run them; or the page says why not."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from servers import Valkey
from servers.launch import free_port
from servers.seaweed import ACCESS_KEY, SECRET_KEY
from tests import postgres, s3
from tests.docs.guide import PAGES, ROOT, blocks_of
from tests.docs.session import Session
from tests.servers_fixtures import real_servers

SCENES = Path(__file__).with_name("scenes")


def follow(
    page: str,
    scratch: Path,
    *,
    server: str = "",
    environ: Mapping[str, str] | None = None,
    instead: Mapping[str, str] | None = None,
) -> None:
    """Run what a page says, from its first block to its last, in the scene that it takes for granted.

    `server` is the command to start one with, where the page itself has none. `instead` replaces what cannot be here.
    """
    scene = SCENES / page
    if scene.exists():
        shutil.copytree(scene, scratch, dirs_exist_ok=True)
    with Session(scratch, environ or {}, instead or {}) as session:
        if server:
            session.serve(server)
        if (scene / "preamble.py").exists():
            session.prepare((scene / "preamble.py").read_text())
        for block in blocks_of(page):
            if block.file or (block.is_command and not block.not_run and not block.run_by):
                session.run(block)
        assert not session.unused, "the page has no such text any more"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README", "quickstart"])
def test_a_reader_gets_from_nothing_to_a_job(page: str, tmp_path: Path) -> None:
    follow(page, tmp_path)


@pytest.mark.parametrize("page", ["handlers", "retries", "testing"])
def test_what_a_guide_writes_in_python_runs(page: str, tmp_path: Path) -> None:
    follow(page, tmp_path)


@pytest.mark.slow
def test_the_guide_to_schedules(tmp_path: Path) -> None:
    follow("schedules", tmp_path, server="penstock up jobs:app")


@pytest.mark.slow
def test_the_guide_to_events(tmp_path: Path) -> None:
    follow("events", tmp_path, server="penstock up jobs:app")


@pytest.mark.slow
def test_the_guide_to_files_with_objects_in_s3(tmp_path: Path) -> None:
    environ = {
        "PENSTOCK_OBJECTS_URL": s3.new_url(),
        "PENSTOCK_OBJECTS_ENDPOINT": s3.seaweed().endpoint,
        "PENSTOCK_OBJECTS_REGION": s3.REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    follow("files", tmp_path, server="penstock up jobs:app", environ=environ)


@pytest.mark.slow
def test_the_guide_to_keys(tmp_path: Path) -> None:
    required = {"PENSTOCK_SERVER_KEYS": "required"}
    follow("keys", tmp_path, environ=required, instead={"--host 0.0.0.0": "--host 127.0.0.1"})


@pytest.mark.slow
def test_the_guide_to_operating(tmp_path: Path) -> None:
    """On PostgreSQL and Valkey, since the page starts roles by themselves too."""
    ports = {port: str(free_port()) for port in ("9464", "9465")}
    with own_servers() as environ:
        follow("operating", tmp_path, environ=environ, instead=ports)


@pytest.mark.slow
def test_the_guide_to_fleets(tmp_path: Path) -> None:
    follow("fleets", tmp_path, server="penstock up jobs:app", instead={"scale thumbnail 5": "scale thumbnail 1"})


@pytest.mark.slow
def test_the_guide_to_the_page(tmp_path: Path) -> None:
    follow("page", tmp_path)


@pytest.mark.slow
def test_the_guide_to_webhooks(tmp_path: Path) -> None:
    follow("webhooks", tmp_path, server="penstock up jobs:app", instead={"7374": str(free_port())})


@pytest.mark.slow
def test_the_guide_to_postgres(tmp_path: Path) -> None:
    """The server's superuser has the name that the guide gives the new role."""
    there = postgres.server(18)
    there.run("DROP DATABASE IF EXISTS guide")
    there.run("DROP ROLE IF EXISTS guide")
    instead = {
        "postgresql://penstock@db1/penstock": f"postgresql://guide@127.0.0.1:{there.port}/guide",
        "db1:5432/penstock": f"127.0.0.1:{there.port}/guide",
        "ROLE penstock": "ROLE guide",
        "DATABASE penstock OWNER penstock": "DATABASE guide OWNER guide",
        "--force penstock && createdb -O penstock penstock": "--force guide && createdb -O guide guide",
    }
    follow("postgres", tmp_path, environ=psql(there.url()), instead=instead)


@pytest.mark.slow
def test_the_guide_to_jobs_inside_a_transaction(tmp_path: Path) -> None:
    url = postgres.server(18).database("guide_transactional")
    follow("transactional", tmp_path, server="penstock up jobs:app", environ={**psql(url), "PENSTOCK_STORE_URL": url})


@pytest.mark.slow
def test_the_guide_to_deploying(tmp_path: Path) -> None:
    with own_servers() as environ:
        follow("deploy", tmp_path, environ=environ)


def test_the_guide_to_kubernetes(tmp_path: Path) -> None:
    follow("kubernetes", tmp_path)


@contextmanager
def own_servers() -> Iterator[dict[str, str]]:
    """An empty database and a broker."""
    with real_servers() as folder, Valkey(folder / "valkey") as valkey:
        url = postgres.server(18).database("guide_servers")
        yield {"PENSTOCK_STORE_URL": url, "PENSTOCK_BROKER_URL": valkey.url}


def psql(url: str) -> dict[str, str]:
    """So that `psql` is found, and finds the database."""
    programs = postgres.server(18).programs
    return {"PATH": f"{Path(sys.executable).parent}:{programs}:{os.environ['PATH']}", **postgres_variables(url)}


def postgres_variables(url: str) -> dict[str, str]:
    known = conninfo_to_dict(url)
    return {f"PG{name}": str(known[key]) for name, key in VARIABLES.items()}


VARIABLES = {"HOST": "host", "PORT": "port", "USER": "user", "DATABASE": "dbname"}

FOLLOWED = {
    *("README", "quickstart", "handlers", "retries", "testing", "schedules", "files", "keys"),
    *("operating", "fleets", "postgres", "transactional", "deploy", "kubernetes", "events", "webhooks", "page"),
    "containers",  # in a file of its own: it builds images
    *("aws", "aws-costs"),  # by the tests that their blocks name; the rest needs an account
}


def test_every_page_is_followed_by_a_test() -> None:
    assert set(PAGES) == FOLLOWED


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_in_blocks_that_say_so(page: str) -> None:
    for block in blocks_of(page):
        assert block.is_command or not block.text.startswith("$ "), block


@pytest.mark.parametrize("page", sorted(FOLLOWED))
def test_what_is_not_run_says_why_or_which_test_runs_it(page: str) -> None:
    for block in blocks_of(page):
        if block.comment:
            assert block.not_run or (ROOT / block.run_by).is_file(), f"{block}: {block.comment}"
