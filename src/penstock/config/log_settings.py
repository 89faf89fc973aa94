"""Settings of what a process tells about itself: metrics and log lines."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from penstock.model.names import whole


class MetricsSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where processes that are no API tell their metrics; APIs tell theirs where they listen."""

    address: Annotated[
        str,
        whole(
            r"(?:|(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5})",
            max_length=260,
            description="Where schedulers, autoscalers and direct workers answer `/metrics`, as `HOST:PORT`; empty: "
            "nowhere. Only loopback addresses need no API key.",
        ),
    ] = ""
    cloudwatch: Annotated[
        bool,
        Meta(
            description="Print the backlog of each queue to standard output every minute, for CloudWatch (embedded "
            "metric format): schedulers and autoscalers. The sweep on Lambda always does."
        ),
    ] = False


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a process writes to its standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least important messages to write.")
    ] = "info"
    format: Annotated[
        Literal["text", "json"], Meta(description="`text` for people, `json` for programs: one object per line.")
    ] = "text"
