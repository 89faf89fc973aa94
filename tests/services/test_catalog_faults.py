"""The catalog after a reading that failed: the next reader asks the store again."""

import pytest

from penstock.engine import Engine
from penstock.model.errors import StoreUnavailable
from penstock.model.notices import Notice
from tests.services.engine_steps import ADD


class Unforeseen(Exception):
    """Not one of ours."""


@pytest.mark.parametrize("fault", [Unforeseen("once"), StoreUnavailable("for a moment")], ids=["unforeseen", "outage"])
async def test_a_reading_that_failed_is_not_the_answer_for_all_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    await engine.catalog.declare([ADD])

    async def failing() -> list[Notice]:
        raise fault

    with monkeypatch.context() as broken:
        broken.setattr(engine.store, "notices", failing)
        with pytest.raises(type(fault)):
            await engine.catalog.read()
    assert ADD.name in (await engine.catalog.read()).types
