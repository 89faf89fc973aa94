"""Subscriptions: create, look at, change, pause, test, rotate, replay, delete; and their delivery logs."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.batches import IDEMPOTENCY_KEY, header_key
from penstock.api.operation import Answer, Header, operation
from penstock.api.request import NO_CONTENT, ApiReply, ApiRequest, InstantText, json_reply, read_instant
from penstock.model.wire.subscriptions import (
    DeliveryPage,
    MadeSubscription,
    ReplayAnswer,
    ReplayRequest,
    RotateSecretRequest,
    SubscriptionChange,
    SubscriptionItem,
    SubscriptionList,
    SubscriptionReport,
    SubscriptionRequest,
    TestOutcome,
)

CREATION_KEY = Header(
    "Idempotency-Key",
    IDEMPOTENCY_KEY.kind,
    "Repeating the request with the same key and body gives the same subscription back, without its secret.",
)


class DeliveriesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of the log, and how many on it: never more than `limits.page_jobs`, whatever `limit` says."""

    before: InstantText | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 50


@operation(
    "POST /v1/subscriptions",
    {
        201: Answer("The subscription; its secret is shown here and never again.", MadeSubscription, (), ("Location",)),
        200: Answer("The subscription that this key made before, without secret.", MadeSubscription, (), ("Location",)),
    },
    body=SubscriptionRequest,
    headers=(CREATION_KEY,),
    refusals=(409,),
)
async def create_subscription(call: ApiRequest) -> ApiReply:
    """Have job events delivered to a sink, from now on. Its address is checked now and at every connect."""
    request = await call.json(SubscriptionRequest)
    made, is_new = await call.engine.subscriptions.create(request, header_key(call, CREATION_KEY))
    location = (b"location", f"/v1/subscriptions/{made.name}".encode())
    return json_reply(201 if is_new else 200, made, (location,))


@operation("GET /v1/subscriptions", {200: Answer("Every subscription, by name.", SubscriptionList)})
async def list_subscriptions(call: ApiRequest) -> ApiReply:
    """List subscriptions, without their secrets."""
    return json_reply(200, SubscriptionList(tuple(await call.engine.subscriptions.list())))


@operation(
    "GET /v1/subscriptions/{subscription}",
    {200: Answer("The subscription and how its deliveries stand.", SubscriptionReport)},
    refusals=(404,),
)
async def get_subscription(call: ApiRequest) -> ApiReply:
    """Look at a subscription: what each shard has delivered, how far behind it is, and what failed."""
    return json_reply(200, await call.engine.deliveries.report(call.path("subscription")))


@operation(
    "PATCH /v1/subscriptions/{subscription}",
    {200: Answer("The subscription, changed.", SubscriptionItem)},
    body=SubscriptionChange,
    refusals=(404,),
)
async def update_subscription(call: ApiRequest) -> ApiReply:
    """Change what is said and leave the rest."""
    name = call.path("subscription")
    return json_reply(200, await call.engine.subscriptions.update(name, await call.json(SubscriptionChange)))


@operation(
    "DELETE /v1/subscriptions/{subscription}",
    {204: Answer("Gone, with its delivery log; what it had not delivered is not delivered any more.")},
    refusals=(404,),
)
async def delete_subscription(call: ApiRequest) -> ApiReply:
    """Remove a subscription and its delivery log."""
    await call.engine.subscriptions.delete(call.path("subscription"))
    return NO_CONTENT


@operation(
    "POST /v1/subscriptions/{subscription}/pause",
    {200: Answer("The subscription, paused.", SubscriptionItem)},
    refusals=(404, 409),
)
async def pause_subscription(call: ApiRequest) -> ApiReply:
    """Deliver nothing until it is resumed. Events wait in the journal, for `retention.events_seconds`."""
    return json_reply(200, await call.engine.subscriptions.pause(call.path("subscription")))


@operation(
    "POST /v1/subscriptions/{subscription}/resume",
    {200: Answer("The subscription, active.", SubscriptionItem)},
    refusals=(404, 409),
)
async def resume_subscription(call: ApiRequest) -> ApiReply:
    """Deliver again, from where it stopped, also after the sink was gone."""
    return json_reply(200, await call.engine.subscriptions.resume(call.path("subscription")))


@operation(
    "POST /v1/subscriptions/{subscription}/test",
    {200: Answer("What came of it, also where it was not delivered.", TestOutcome)},
    refusals=(404,),
)
async def send_test_event(call: ApiRequest) -> ApiReply:
    """Send one event of type `dev.penstock.test` now, signed as all are. It is about no job, and not retried."""
    return json_reply(200, await call.engine.subscriptions.test(call.path("subscription")))


@operation(
    "POST /v1/subscriptions/{subscription}/rotate",
    {201: Answer("The subscription; its new secret is shown here and never again.", MadeSubscription)},
    body=RotateSecretRequest,
    refusals=(404,),
)
async def rotate_signing_secret(call: ApiRequest) -> ApiReply:
    """Sign with a new secret. The one before signs too for a day, so that receivers can change theirs meanwhile."""
    name, request = call.path("subscription"), await call.json(RotateSecretRequest)
    return json_reply(201, await call.engine.subscriptions.rotate(name, request.secret))


@operation(
    "POST /v1/subscriptions/{subscription}/replay",
    {200: Answer("How many events will be delivered again.", ReplayAnswer)},
    body=ReplayRequest,
    refusals=(404, 409, 410),
)
async def replay_events(call: ApiRequest) -> ApiReply:
    """Deliver again: one event, those of a span of time that fit the filter, or all that are dead.

    At most 10,000 at a time. What has not been delivered for the first time is left to that.
    """
    name = call.path("subscription")
    return json_reply(200, await call.engine.deliveries.replay(name, await call.json(ReplayRequest)))


@operation(
    "GET /v1/subscriptions/{subscription}/deliveries",
    {200: Answer("A page of the log, newest first.", DeliveryPage)},
    query=DeliveriesQuery,
    refusals=(404,),
)
async def list_deliveries(call: ApiRequest) -> ApiReply:
    """List deliveries: failures one by one, successes in a row as one line."""
    query = call.query(DeliveriesQuery)
    limit = min(query.limit, call.engine.settings.limits.page_jobs)
    before = None if query.before is UNSET else read_instant("before", query.before)
    return json_reply(200, await call.engine.deliveries.log(call.path("subscription"), before, limit))


OPERATIONS = (
    create_subscription,
    list_subscriptions,
    get_subscription,
    update_subscription,
    delete_subscription,
    pause_subscription,
    resume_subscription,
    send_test_event,
    rotate_signing_secret,
    replay_events,
    list_deliveries,
)
