"""The README's session, word for word, against a real server with the example job types."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.system.harness import ROOT, Server, ending

SESSION = re.compile(r"<!-- session:.*?-->\n```console\n(?P<text>.*?)```", re.DOTALL)


def commands_and_answers() -> list[tuple[str, str]]:
    found = SESSION.search((ROOT / "README.md").read_text())
    assert found is not None
    parts = re.split(r"^\$ ", found["text"], flags=re.MULTILINE)[1:]
    return [(command, answer) for command, _, answer in (part.partition("\n") for part in parts)]


@pytest.mark.slow
def test_the_session_of_the_readme_works_word_for_word(tmp_path: Path) -> None:
    session = commands_and_answers()
    assert len(session) > 10
    server = Server(tmp_path / "data", app="examples.quickstart:app")
    with ending(server):
        script = "\n".join(f"{command}\necho '<<end>>'" for command, _ in session)
        script = script.replace("http://127.0.0.1:7373", server.url)
        said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    answers = said.stdout.split("<<end>>\n")
    for (command, told), answer in zip(session, answers, strict=False):
        assert answer.rstrip("\n") == told.rstrip("\n"), command
    assert said.stderr == ""
