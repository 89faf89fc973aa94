"""Options that there are not are refused, and named, before anything is sent."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Client, Penstock
from penstock.model.errors import Invalid

# A type checker refuses all of these too.
app: Any = Penstock()
nowhere: Any = Client("http://127.0.0.1:1", patience=0)


def greet_plainly() -> str:
    return "hello"


greet = app.job(greet_plainly)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: greet.using(prioritty=9), "submit: there is no option prioritty; did you mean priority?"),
        (lambda: nowhere.submit("greet", delay_seconds=60), "no option delay_seconds; did you mean delay?"),
        (lambda: nowhere.submit("greet", idempotency_key="k"), "did you mean key?"),
        (lambda: nowhere.submit_many([{"type": "greet", "tag": ["a"]}]), "did you mean tags?"),
        (lambda: nowhere.submit("greet", zzz=1), "there are: delay, expires_at, inputs, interval, key, priority"),
        (lambda: app.job(timeout_seconds=5)(greet_plainly), "no option timeout_seconds; did you mean timeout?"),
        (lambda: app.command("ls", ["ls"], isolated=True), "job type 'ls': there is no option isolated"),
        (
            lambda: app.schedule("s", greet, crom="* * * * *"),
            "schedule 's': there is no option crom; did you mean cron?",
        ),
        (lambda: nowhere.schedule("s", "greet", evry=5), "schedule 's': there is no option evry"),
        (lambda: nowhere.update_schedule("s", intervall=5), "update_schedule: there is no option intervall; did you"),
        (lambda: nowhere.preview_of(3, intervall=5), "preview_of: there is no option intervall; did you mean interval"),
        (lambda: nowhere.update_fleet("f", maximum=5), "update_fleet: there is no option maximum"),
    ],
)
def test_an_option_that_there_is_not_is_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(Invalid) as refused:
        call()
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: greet.using(key=""),
        lambda: nowhere.submit("greet", {"name": "x"}, key=""),
        lambda: nowhere.submit_many([{"type": "greet", "key": ""}]),
    ],
)
def test_an_empty_key_is_refused_and_not_taken_for_none(call: Callable[[], Any]) -> None:
    with pytest.raises(Invalid, match="key: an idempotency key is not empty"):
        call()
