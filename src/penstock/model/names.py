"""Names that people give: of job types, queues, workers and fleets."""

from typing import Annotated

from msgspec import Meta

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
Name = Annotated[str, Meta(pattern=NAME_PATTERN, max_length=128)]

MEMBER = "PENSTOCK_MEMBER"
"""The variable in a worker's environment that gives it the name under which it joins."""
