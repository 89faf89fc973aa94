"""Names of SQS queues, and tickets as the bodies of messages."""

import hashlib
import re
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from penstock.model.errors import BrokerUnavailable, Invalid, InvalidSetting
from penstock.model.ids import parse_job_id, shard_of
from penstock.model.job import DEFAULT_PRIORITY, PRIORITIES, BacklogKey, Ticket

NAME_MAX = 80
BATCH_ENTRIES = 10
BATCH_BYTES = 256 * 1024
"""What SQS takes in one call."""

_PREFIX = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38}[A-Za-z0-9])?")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_DIGEST = re.compile(r"--[0-9a-f]{16}\Z")
_DIGEST_LENGTH = 16


def check_prefix(prefix: str) -> str:
    """The prefix, if names can begin with it."""
    if _PREFIX.fullmatch(prefix) is None:
        raise InvalidSetting(
            f"broker.url: {prefix!r} cannot begin the names of queues; write sqs://PREFIX with up to 40 letters, "
            "digits and hyphens, and no hyphen at either end"
        )
    return prefix


def queue_name(prefix: str, key: BacklogKey) -> str:
    """The SQS queue of a backlog: PREFIX-TYPE where type and queue have one name, else something readable and a digest.

    No two backlogs have one name: a plain name never ends as a digest does.
    """
    name = f"{prefix}-{key.type}"
    if key.queue == key.type and len(name) <= NAME_MAX and _PLAIN.fullmatch(name) and not _DIGEST.search(name):
        return name
    digest = hashlib.sha256(f"{len(key.queue)}:{key.queue}/{key.type}".encode()).hexdigest()[:_DIGEST_LENGTH]
    readable = re.sub("[^A-Za-z0-9_-]+", "-", key.type if key.queue == key.type else f"{key.type}-{key.queue}")
    return f"{f'{prefix}-{readable}'[: NAME_MAX - len(digest) - 2]}--{digest}"


def plain_key(prefix: str, name: str) -> BacklogKey | None:
    """The backlog of a queue named PREFIX-TYPE; None if the name has a digest and does not tell it."""
    type_name = name.removeprefix(f"{prefix}-")
    return None if _DIGEST.search(name) or not type_name else BacklogKey(type_name, type_name)


class SqsTicket(Struct, frozen=True):
    """The body of a message. The shard is part of the job's id."""

    job: str
    queue: str
    type: str
    priority: Annotated[int, Meta(ge=0, lt=PRIORITIES)] = DEFAULT_PRIORITY


def encode_ticket(ticket: Ticket) -> str:
    """One line of JSON, of which a batch holds BATCH_ENTRIES whatever the names are."""
    body = msgspec.json.encode(SqsTicket(ticket.job, ticket.queue, ticket.type, ticket.priority))
    if len(body) > BATCH_BYTES // BATCH_ENTRIES:
        raise BrokerUnavailable(
            f"the ticket of job {ticket.job} has {len(body)} bytes and does not fit into a message of SQS; "
            "give its queue and type shorter names"
        )
    return body.decode()


_decode = msgspec.json.Decoder(SqsTicket).decode


def decode_ticket(body: str) -> Ticket:
    """The ticket in a message; ValueError if there is none."""
    try:
        found = _decode(body)
        job = parse_job_id(found.job)
    except (msgspec.MsgspecError, Invalid) as error:
        raise ValueError(str(error)) from None
    return Ticket(shard_of(job), job, found.queue, found.type, found.priority)


def encode_tag(name: str) -> str:
    """A name as the value of a tag, where AWS allows few characters: a plain one as it is, others in hexadecimal."""
    return name if _PLAIN.fullmatch(name) else f":{name.encode().hex()}"


def decode_tag(value: str) -> str:
    """The name; ValueError if it is none."""
    return bytes.fromhex(value[1:]).decode() if value.startswith(":") else value
