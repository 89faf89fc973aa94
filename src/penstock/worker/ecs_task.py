"""A worker as a task of Amazon ECS: the id of its task, which is its name."""

import json
import logging

from penstock.http1 import Http1Client, NoAnswer
from penstock.model.clock import Clock, seconds
from penstock.model.errors import InvalidSetting

logger = logging.getLogger("penstock.worker")

ANSWER_SECONDS = 2.0
TRIES = 5
PAUSE = seconds(1.0)


async def read_task_id(url: str, clock: Clock) -> str:
    """The id of the ECS task whose metadata are at `url`.

    InvalidSetting if it cannot be read: under another name the worker would look like one that never joined, and its
    task would be stopped whatever it runs.
    """
    wrong = ""
    for left in reversed(range(TRIES)):
        try:
            return await _ask(url)
        except (NoAnswer, TimeoutError, ValueError, KeyError, TypeError) as error:
            wrong = str(error) or type(error).__name__
        if left:
            await clock.sleep(PAUSE)
    raise InvalidSetting(f"the ECS metadata at {url}/task do not name this task: {wrong}; start it again")


async def _ask(url: str) -> str:
    client = Http1Client(url)
    try:
        reply = await client.call("GET", "/task", b"", {}, ANSWER_SECONDS)
    finally:
        await client.close()
    if not reply.good:
        raise ValueError(f"it answers {reply.status}")
    return str(json.loads(reply.body)["TaskARN"]).rpartition("/")[2]
