"""An endpoint as a value: how it is reached, what it takes, what it answers. Routing and OpenAPI read the same one."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from penstock.api.access import Scopes, scopes_of
from penstock.api.request import JSON, AnyReply, ApiRequest

Endpoint = Callable[[ApiRequest], Awaitable[AnyReply]]

GROUPS = {"batches": "batch"}
"""Tags that differ from the name of their operations' module: a tag is public and stays."""


class Answer(Struct, frozen=True):
    """What a good answer holds: a struct as JSON, something of the given content types, or nothing."""

    about: str
    body: type[Struct] | None = None
    content_types: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    @property
    def contents(self) -> tuple[str, ...]:
        return self.content_types or ((JSON,) if self.body is not None else ())


class Header(Struct, frozen=True):
    """A request header that an operation reads."""

    name: str
    kind: Any
    about: str
    required: bool = False


class Operation(Struct, frozen=True, kw_only=True):
    """One method on one path. `takes_bytes` names an operation whose body is a file rather than JSON.

    `scopes`: an API key needs any one of them, and none at all where it is empty; see `scopes`.
    `needs_key`: also on a server that otherwise needs none.
    `refusals` are the statuses it may answer besides those that follow from what it takes; see `openapi`.
    """

    method: str
    path: str
    run: Endpoint
    answers: Mapping[int, Answer]
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    takes_bytes: bool = False
    headers: tuple[Header, ...] = ()
    refusals: tuple[int, ...] = ()
    scopes: Scopes
    needs_key: bool = False

    @property
    def name(self) -> str:
        """Unique among all operations; generated clients name their functions after it."""
        return self.run.__name__

    @property
    def summary(self) -> str:
        return (self.run.__doc__ or "").partition("\n")[0].strip()

    @property
    def group(self) -> str:
        """The tag of the OpenAPI document, which generated clients name their modules after."""
        module = self.run.__module__.rpartition(".")[2]
        return GROUPS.get(module, module)


def operation(
    route: str,
    answers: Mapping[int, Answer],
    *,
    query: type[Struct] | None = None,
    body: type[Struct] | None = None,
    takes_bytes: bool = False,
    headers: tuple[Header, ...] = (),
    refusals: tuple[int, ...] = (),
    scopes: Scopes | None = None,
    needs_key: bool = False,
) -> Callable[[Endpoint], Operation]:
    """Make a function the operation at `route` (`"GET /v1/jobs"`). Its docstring becomes the summary in OpenAPI."""
    method, _, path = route.partition(" ")

    def decorate(run: Endpoint) -> Operation:
        return Operation(
            method=method,
            path=path,
            run=run,
            answers=answers,
            query=query,
            body=body,
            takes_bytes=takes_bytes,
            headers=headers,
            refusals=refusals,
            scopes=scopes_of(method, path) if scopes is None else scopes,
            needs_key=needs_key,
        )

    return decorate
