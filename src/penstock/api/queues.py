"""Queues: how much waits where, and pausing it."""

from penstock.api.access import show_queue
from penstock.api.operation import Answer, operation
from penstock.api.request import ApiReply, ApiRequest, json_reply
from penstock.model.wire.jobs import QueueItem, QueueList


@operation("GET /v1/queues", {200: Answer("Every queue, by name.", QueueList)})
async def list_queues(call: ApiRequest) -> ApiReply:
    """List queues with their jobs by state and how long the oldest has waited."""
    return json_reply(200, QueueList(tuple(await call.engine.queues.list()), call.engine.store.unavailable()))


@operation("GET /v1/queues/{queue}", {200: Answer("The queue.", QueueItem)}, refusals=(404,))
async def get_queue(call: ApiRequest) -> ApiReply:
    """Look at a queue."""
    return json_reply(200, await call.engine.queues.get(call.path("queue")))


@operation("POST /v1/queues/{queue}/pause", {200: Answer("The queue, paused.", QueueItem)})
async def pause_queue(call: ApiRequest) -> ApiReply:
    """Stop handing out a queue's jobs; running ones go on."""
    return json_reply(200, show_queue(call, await call.engine.queues.pause(call.path("queue"), paused=True)))


@operation("POST /v1/queues/{queue}/resume", {200: Answer("The queue, resumed.", QueueItem)})
async def resume_queue(call: ApiRequest) -> ApiReply:
    """Hand out a queue's jobs again."""
    return json_reply(200, show_queue(call, await call.engine.queues.pause(call.path("queue"), paused=False)))


OPERATIONS = (list_queues, get_queue, pause_queue, resume_queue)
