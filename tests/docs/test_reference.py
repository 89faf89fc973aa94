"""What the reference says exists, and what exists is in the reference."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import penstock
from penstock import JobHandle
from penstock.api.app import OPERATIONS
from penstock.api.metrics import FAMILIES
from penstock.api.problems import status_of
from penstock.cli import ROOT
from penstock.cli.commands import CommandGroup
from penstock.config import Settings
from penstock.config.load import FIELDS
from penstock.engine import jobs
from penstock.model.errors import tree
from penstock.model.job import ErrorCode
from penstock.model.lifecycle import MOVES, State
from penstock.model.wire.jobs import JobItem, SubmitRequest

DOCS = Path(__file__).resolve().parents[2] / "docs"
TABLE_ROW = re.compile(r"^\| (?P<cells>.+) \|$", re.MULTILINE)


def rows(page: str, section: str | None = None) -> Iterator[list[str]]:
    """The cells of every table row of a page, or of one of its sections, whose first cell is code."""
    text = (DOCS / page).read_text()
    if section is not None:
        text = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
    for row in TABLE_ROW.finditer(text):
        cells = row["cells"].split(" | ")
        if cells[0].startswith("`"):
            yield [cell.strip("`") for cell in cells]


def test_settings_and_their_defaults() -> None:
    told = {name: default for name, default, _ in rows("reference/settings.md")}
    assert set(told) == set(FIELDS)
    for name, default in told.items():
        section, _, field = name.partition(".")
        value = getattr(getattr(Settings(), section), field)
        assert default == _told(value)


def _told(value: object) -> str:
    match value:
        case () | "":
            return "(none)"
        case bool():
            return str(value).lower()
        case tuple():
            return ", ".join(value)
        case _:
            return str(value)


def test_metrics_with_their_kinds_and_meanings() -> None:
    told = {name: (kind, about) for name, kind, _, about in rows("reference/metrics.md")}
    assert told == {family.name: (family.kind, family.about) for family in FAMILIES}


def test_endpoints() -> None:
    assert {cells[0] for cells in rows("reference/http.md")} == {f"{one.method} {one.path}" for one in OPERATIONS}


def test_the_fields_of_a_job_and_of_a_submit() -> None:
    text = (DOCS / "reference/http.md").read_text()
    item = text.partition("## The job item\n")[2].partition("\n\n`GET")[0]
    assert set(re.findall(r"`(\w+)`", item)) == set(JobItem.__struct_fields__)
    adding = text.partition("## Adding a job\n")[2].partition("It answers")[0]
    assert set(re.findall(r"`(\w+)`", adding)) == set(SubmitRequest.__struct_fields__)


def leaves(group: CommandGroup = ROOT, path: tuple[str, ...] = ("penstock",)) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, CommandGroup):
            yield from leaves(found, (*path, name))
        else:
            yield " ".join((*path, name))


def test_commands() -> None:
    assert {cells[0] for cells in rows("reference/cli.md")} == set(leaves())


def test_error_codes_and_their_statuses() -> None:
    known = {error.code: error for error in tree() if error.__module__ == "penstock.model.errors"}
    told = {code: (name, status) for code, name, status, _ in rows("reference/errors.md")}
    assert set(told) == set(known)
    for code, (name, status) in told.items():
        assert name == known[code].__name__
        assert status in {"–", str(status_of(known[code]("x")))}


def test_reasons_of_an_attempt_that_errored() -> None:
    assert {cells[0] for cells in rows("guides/retries.md")} == set(ErrorCode)


def test_states() -> None:
    assert {cells[0] for cells in rows("design/lifecycle.md", "States")} == set(State)


def test_moves_are_the_code_s_own_table() -> None:
    told = {cells[0]: cells[1:] for cells in rows("design/lifecycle.md", "Moves")}
    assert set(told) == set(MOVES)
    for move, rule in MOVES.items():
        before, after, who, guard = told[move]
        assert set(before.split(", ")) - {"–"} == set(rule.before)
        assert set(after.split(", ")) == set(rule.after)
        assert (who, guard) == (rule.who, rule.guard)


def test_why_a_job_waits() -> None:
    reasons = {value for name, value in vars(jobs).items() if name.isupper() and isinstance(value, str)}
    assert {cells[0] for cells in rows("design/lifecycle.md", "Why a job waits")} == reasons


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_how_long_a_wait_lasts_unless_told_otherwise() -> None:
    page = (DOCS / "reference/python.md").read_text()
    told = {float(seconds) for seconds in re.findall(r"(?:job|client)\.wait\((?:id, )?timeout=(\d+)\)`", page)}
    waits = (JobHandle.wait, JobHandle.wait_async, penstock.Client.wait, penstock.AsyncClient.wait)
    defaults = {inspect.signature(wait).parameters["timeout"].default.total_seconds() for wait in waits}
    assert told == defaults


def test_the_names_of_the_package_and_of_its_clients() -> None:
    page = (DOCS / "reference/python.md").read_text()
    (statement,) = ast.parse(page.partition("```python\n")[2].partition("```")[0]).body
    assert isinstance(statement, ast.ImportFrom)
    assert {name.name for name in statement.names} == set(penstock.__all__) - {"__version__"}
    clients = re.findall(r"`(\w+)`", page.partition("without any app: ")[2].partition(". Errors")[0])
    for client in (penstock.Client, penstock.AsyncClient):
        assert set(clients) == {name for name in dir(client) if not name.startswith("_")} - {"close"}


@pytest.mark.parametrize(
    "page",
    [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))],
    ids=lambda page: str(page.relative_to(DOCS.parent)),
)
def test_commands_named_in_a_sentence_exist_with_their_options(page: Path) -> None:
    for text in re.findall(r"`penstock ((?!up\|)[a-z][^`]*)`", page.read_text()):
        words = text.split()
        command: click.Command = ROOT
        while isinstance(command, CommandGroup) and words and re.fullmatch(r"[a-z-]+", words[0]):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, text
            command = found
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert given <= known | {"--help"}, text
