"""The README's session, word for word, against a real server with the example job types."""

import subprocess
from pathlib import Path

import pytest

from tests.docs.guide import Step, blocks_of
from tests.system.harness import Server, ending


def session() -> list[Step]:
    (block,) = (one for one in blocks_of("README") if one.run_by == "tests/docs/test_readme.py")
    return block.steps


@pytest.mark.slow
def test_the_session_of_the_readme_works_word_for_word(tmp_path: Path) -> None:
    steps = session()
    assert len(steps) > 10
    server = Server(tmp_path / "data", app="examples.quickstart:app")
    with ending(server):
        script = "\n".join(f"{step.command}\necho '<<end>>'" for step in steps)
        script = script.replace("http://127.0.0.1:7373", server.url)
        said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    answers = said.stdout.split("<<end>>\n")
    for step, answer in zip(steps, answers, strict=False):
        assert answer.rstrip("\n") == step.told.rstrip("\n"), step.command
    assert said.stderr == ""
