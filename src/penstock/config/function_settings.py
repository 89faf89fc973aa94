"""Settings of the functions on AWS Lambda."""

from typing import Annotated

from msgspec import Meta, Struct


class FunctionSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The functions of AWS Lambda: how the sweep is woken, and whose workers it starts."""

    wake_queue: Annotated[
        str,
        Meta(
            description="URL of the SQS queue that invokes the sweep before its minute is over; empty: once a minute."
        ),
    ] = ""
    busy_seconds: Annotated[
        float, Meta(description="How often the sweep runs while jobs wait or run.", ge=1, le=60)
    ] = 5.0
    app: Annotated[
        str, Meta(description="MODULE:APP whose workers the sweep starts and stops; empty: it scales no fleets.")
    ] = ""
