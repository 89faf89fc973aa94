"""The app: where job types are declared beside their handlers, and where jobs are submitted from."""

import inspect
import shlex
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec

from penstock.client.aio import AsyncClient
from penstock.client.client import Client
from penstock.client.handle import JobHandle
from penstock.client.http import error_of
from penstock.client.options import (
    OPTIONS,
    Duration,
    JobSpec,
    ScheduleOptions,
    Stencil,
    SubmitOptions,
    body_of,
    check_submit,
    declared_schedule,
    seconds_of,
    spec_of,
)
from penstock.context import Context
from penstock.model.errors import Invalid, InvalidParams
from penstock.model.fleets import Fleet
from penstock.model.ids import JobId
from penstock.model.params import Signature
from penstock.model.results import ReturnType
from penstock.model.retry import Retry
from penstock.model.text import check_options
from penstock.model.wire.jobs import BatchAnswer
from penstock.model.wire.schedules import ScheduleRequest
from penstock.model.workers import HandlerKind, JobType
from penstock.transactional import submit_request, submit_request_async

P = ParamSpec("P")
R = TypeVar("R")
Q = ParamSpec("Q")
X = TypeVar("X")


class JobOptions(TypedDict, total=False):
    """What may be said about a job type. The queue is its own, named like it, unless told otherwise.

    `timeout` bounds one attempt: an hour unless told otherwise, None for no bound. `fleet` gives it workers of its own.
    """

    queue: str
    priority: int
    retry: Retry
    timeout: Duration | None
    fleet: Fleet


class FunctionOptions(JobOptions, total=False):
    """The same, and what only a function needs said: another name than its own, a process of its own for each job."""

    name: str
    isolated: bool


class Penstock:
    """The job types and schedules of one application. Decorate functions with `@app.job`, and point workers at it.

    `url` is the server that jobs are submitted to: else PENSTOCK_URL, else http://127.0.0.1:7373.
    `key` is the API key to show it: else PENSTOCK_KEY, else none. In a handler both are those of its worker, unless
    given here. `patience` is how long a call goes on asking a server that is unavailable: else PENSTOCK_PATIENCE, else
    5 seconds, in a handler 30.
    """

    def __init__(self, url: str | None = None, *, key: str | None = None, patience: Duration | None = None) -> None:
        self.url = url
        self._key = key
        self._patience = patience
        self.handlers: dict[str, Handler[..., Any]] = {}
        self.schedules: dict[str, ScheduleRequest] = {}

    @cached_property
    def client(self) -> Client:
        """The app's own client; nothing is sent before it is used."""
        return Client(self.url, key=self._key, patience=self._patience)

    @cached_property
    def async_client(self) -> AsyncClient:
        """The same for asyncio."""
        return AsyncClient(self.url, key=self._key, patience=self._patience)

    @property
    def job(self) -> "Declaration":
        """Declare a function as the handler of a job type: `@app.job`, or `@app.job(queue="mail", timeout=60)`."""
        return Declaration(self, {})

    def command(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        params_schema: dict[str, Any] | None = None,
        **options: Unpack[JobOptions],
    ) -> "Handler[..., Any]":
        """Declare a program as the handler of a job type. Params are named; `params_schema` None accepts any."""
        if isinstance(argv, str) or not argv:
            raise Invalid(f"command {name!r}: give argv as a list of words, such as {shlex.split(str(argv))!r}")
        declared = job_type(name, HandlerKind.COMMAND, options, params_schema)
        return self.add(Handler(self, declared, command=Command(tuple(argv), dict(env or {}))))

    def schedule(
        self,
        name: str,
        handler: "Handler[..., Any]",
        *,
        params: Mapping[str, object] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleRequest:
        """Declare that a handler's jobs come again and again: on an `interval`, or by `cron` in a `timezone`.

        Nothing ticks here: workers of this app bring what is declared to the server when they join. There it is made,
        or made to say what is said here; unchanged, it is left alone. Invalid names what in it can never be.
        """
        if name in self.schedules:
            raise Invalid(f"schedule {name!r} is declared twice; give one of them another name")
        declared = declared_schedule(name, handler.name, msgspec.Raw(handler.params((), params or {})), options)
        self.schedules[name] = declared
        return declared

    def submit_in(
        self, connection: object, handler: "Handler[P, R] | Submitter[P, R]", /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]:
        """Add a job within a transaction of yours on a PostgreSQL shard: it is there if you commit, and only then.

        `connection` is a psycopg connection or cursor, or a SQLAlchemy connection or session. With options:
        `app.submit_in(connection, thumbnail.using(priority=9), url)`. No server is asked: what the shard refuses is
        raised as its driver raises it.
        """
        using = handler.using() if isinstance(handler, Handler) else handler
        return using.handle(submit_request(connection, using.request(args, kwargs)))

    async def submit_in_async(
        self, connection: object, handler: "Handler[P, R] | Submitter[P, R]", /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]:
        """`submit_in` on an asynchronous connection or session."""
        using = handler.using() if isinstance(handler, Handler) else handler
        return using.handle(await submit_request_async(connection, using.request(args, kwargs)))

    def add(self, handler: "H") -> "H":
        """Keep a handler. Each job type has one."""
        if handler.name in self.handlers:
            raise Invalid(f"job type {handler.name!r} is declared twice; give one of them another name=")
        self.handlers[handler.name] = handler
        return handler


class Command(msgspec.Struct, frozen=True):
    """A program as a handler: argv, never a shell; `env` is added to a clean environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = {}


class Handler(Generic[P, R]):
    """A job type and what runs it, a function or a command. `submit` makes a job of it, typed like the function."""

    def __init__(
        self,
        app: Penstock,
        declared: JobType,
        function: Callable[..., Any] | None = None,
        command: Command | None = None,
        signature: Signature | None = None,
    ) -> None:
        self.app = app
        self.declared = declared
        self.function = function
        self.command = command
        self.signature = signature

    @property
    def name(self) -> str:
        return self.declared.name

    def using(self, **options: Unpack[SubmitOptions]) -> "Submitter[P, R]":
        """Submit with these options: `thumbnail.using(priority=9, delay=60).submit(url)`.

        Invalid names one that there is not.
        """
        check_submit(options, OPTIONS)
        return Submitter(self, options)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Add a job that calls the function with these arguments; durable once this returns."""
        return self.using().submit(*args, **kwargs)

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`submit` without blocking the event loop."""
        return await self.using().submit_async(*args, **kwargs)

    def submit_many(self, calls: Iterable[Mapping[str, object] | tuple[object, ...]]) -> list[JobHandle[R]]:
        """Add a job per call, each given as named (a mapping) or positional (a tuple) arguments; in order."""
        return self.using().submit_many(calls)

    def params(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
        """The arguments of a call as JSON; InvalidParams if the handler would not take them."""
        if self.signature is not None:
            return self.signature.encode(args, kwargs)
        if args:
            raise InvalidParams(f"{self.name!r} is a command: give its params by name")
        return msgspec.json.encode(kwargs)

    def read_result(self, plain: object) -> R:
        """A result as the function's return annotation says, from its plain JSON value."""
        value: R = self.returns.read(plain)
        return value

    @cached_property
    def returns(self) -> ReturnType:
        """What its jobs' results are like; anything, where a program gives them."""
        return ReturnType.of(self.function) if self.function else ReturnType(Any)


class FunctionHandler(Handler[P, R], Generic[P, R, Q, X]):
    """A handler that is a function. Calling it calls the function, here and now, with no job made of it."""

    __name__: str

    def __init__(self, app: Penstock, declared: JobType, function: Callable[Q, X], signature: Signature) -> None:
        super().__init__(app, declared, function, signature=signature)
        self._call = function
        update_wrapper(self, function)

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> X:
        return self._call(*args, **kwargs)


class Submitter(Generic[P, R]):
    """A handler with options to submit its jobs with."""

    def __init__(self, handler: Handler[P, R], options: SubmitOptions) -> None:
        self._handler = handler
        self._options = options

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Add a job that calls the function with these arguments; durable once this returns."""
        params = msgspec.Raw(self._handler.params(args, kwargs))
        item = self._handler.app.client.submit(self._handler.name, params, **self._options)
        return JobHandle(item.id, self._handler.app, self._handler.read_result, item)

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`submit` without blocking the event loop."""
        params = msgspec.Raw(self._handler.params(args, kwargs))
        item = await self._handler.app.async_client.submit(self._handler.name, params, **self._options)
        return JobHandle(item.id, self._handler.app, self._handler.read_result, item)

    def submit_many(self, calls: Iterable[Mapping[str, object] | tuple[object, ...]]) -> list[JobHandle[R]]:
        """Add a job per call, in order. InvalidParams, before anything is sent, if the handler would not take one.

        What the server refuses is raised once all have been answered; `details["answers"]` says which were accepted.
        """
        answers = self._handler.app.client.submit_many(self._jobs(calls))
        raise_refused(answers)
        app, read_result = self._handler.app, self._handler.read_result
        return [JobHandle(one.id, app, read_result) for one in answers if one.id]

    def request(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """A call as the JSON of a request, complete without a server. Invalid for what only a server can do."""
        for option in ("inputs", "interval"):
            if self._options.get(option):
                raise Invalid(f"{option}: not possible inside a transaction; submit through the server")
        spec = spec_of(self._handler.name, msgspec.Raw(self._handler.params(args, kwargs)), self._options)
        return msgspec.json.encode(_defaults(self._handler.declared) | body_of(spec, {})).decode()

    def handle(self, job: JobId) -> JobHandle[R]:
        """A job of this handler, by its id."""
        return JobHandle(job, self._handler.app, self._handler.read_result)

    def _jobs(self, calls: Iterable[Mapping[str, object] | tuple[object, ...]]) -> Sequence[JobSpec | msgspec.Raw]:
        name, options = self._handler.name, self._options
        if options.get("inputs"):
            return [spec_of(name, msgspec.Raw(self._params(call)), options) for call in calls]
        stencil = Stencil(name, options)
        return [stencil.body(self._params(call)) for call in calls]

    def _params(self, call: Mapping[str, object] | tuple[object, ...]) -> bytes:
        # `dict` first: to ask the abstract class takes as long as everything else here.
        if isinstance(call, (dict, Mapping)):
            return self._handler.params((), call)
        return self._handler.params(call, {})


class Declaration:
    """`@app.job`, bare or with options. The checker sees the function's own parameters, without a leading Context."""

    def __init__(self, app: Penstock, options: FunctionOptions) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> FunctionHandler[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> FunctionHandler[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> FunctionHandler[P, R, Concatenate[Context, P], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionHandler[P, R, P, R]: ...
    @overload
    def __call__(self, function: None = None, /, **options: Unpack[FunctionOptions]) -> "Declaration": ...
    def __call__(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[FunctionOptions]
    ) -> "Handler[..., Any] | Declaration":
        return Declaration(self._app, options) if function is None else self._declare(function)

    def _declare(self, function: Callable[..., Any]) -> Handler[..., Any]:
        signature = Signature.of(function)
        kind = HandlerKind.ASYNC if inspect.iscoroutinefunction(function) else HandlerKind.THREAD
        declared = job_type(function.__name__, kind, self._options, signature.schema(), inspect.getdoc(function))
        return self._app.add(FunctionHandler(self._app, declared, function, signature))


def _defaults(declared: JobType) -> dict[str, object]:
    """What a job type says about a submit that says nothing itself."""
    return {
        "queue": declared.queue,
        "priority": declared.priority,
        "retry_policy": declared.retry,
        "timeout_seconds": declared.timeout_seconds,
        "allow_unknown": True,
    }


H = TypeVar("H", bound=Handler[..., Any])


def job_type(
    name: str,
    kind: HandlerKind,
    options: JobOptions | FunctionOptions,
    schema: dict[str, Any] | None,
    description: str | None = None,
) -> JobType:
    """The declared job type; Invalid names what in it cannot be."""
    known = JobOptions if kind is HandlerKind.COMMAND else FunctionOptions
    check_options(f"job type {name!r}", options, known.__optional_keys__)
    fields: dict[str, Any] = {"name": name, **options}
    fields.setdefault("queue", fields["name"])
    if fields.pop("isolated", False):
        kind = HandlerKind.ISOLATED
    if "timeout" in fields:
        fields["timeout_seconds"] = seconds_of(fields.pop("timeout"))
    try:
        declared = JobType(**fields, kind=kind, params_schema=schema, description=description)
        return msgspec.convert(msgspec.to_builtins(declared), JobType)
    except (TypeError, msgspec.ValidationError) as error:
        raise Invalid(f"job type {fields['name']!r} cannot be declared: {error}") from None


def raise_refused(answers: Sequence[BatchAnswer]) -> None:
    """Raise the first refusal as its error, naming all of them; nothing if all were accepted."""
    refused = [(one.index, one.problem) for one in answers if one.problem is not None]
    if refused:
        error = error_of(refused[0][1])
        each = "; ".join(f"number {index}: {problem.detail or problem.title}" for index, problem in refused[:10])
        more = f"; and {len(refused) - 10} more" if len(refused) > 10 else ""
        raise type(error)(f"{len(refused)} of {len(answers)} jobs were refused: {each}{more}", answers=answers)
