"""What a type checker sees of an app. Never run: `test_app.py` has mypy read it.

`# seen: T` is what mypy must reveal on that line. An ignored error must be one: mypy refuses an ignore without a need.
"""

from typing import reveal_type

from penstock import Context, Depth, Fleet, KeepWarm, Penstock, Retry, Step, Wait

app = Penstock()


@app.job
async def add(a: int, b: int = 0) -> int:
    return a + b


@app.job(retry=Retry.none(), timeout=60)
def slow(ctx: Context, seconds: float) -> str:
    return str(seconds)


@app.job(name="files.index", queue="files")
async def index(ctx: Context, path: str, *, deep: bool = False) -> list[str]:
    return [path] if deep else []


@app.job
def nothing() -> None: ...


@app.job(fleet=Fleet(min=0, max=20, target_wait="5s", keep_warm=(KeepWarm(start="08:00", end="18:00"),)))
def scaled(a: int) -> int:
    return a


shout = app.command("shout", ["tr", "a-z", "A-Z"], fleet=Fleet(policy=Depth(steps=(Step(above=9, add=2),))))
steady = Fleet(policy=Wait(target=2), in_after="5m", queues=("a", "b"))

reveal_type(add.submit)  # seen: def (a: int, b: int =) -> JobHandle[int]
reveal_type(slow.submit)  # seen: def (seconds: float) -> JobHandle[str]
reveal_type(index.submit)  # seen: def (path: str, *, deep: bool =) -> JobHandle[list[str]]
reveal_type(nothing.submit)  # seen: def () -> JobHandle[None]
reveal_type(index.using(priority=9, delay=5).submit)  # seen: def (path: str, *, deep: bool =) -> JobHandle[list[str]]
reveal_type(scaled.submit)  # seen: def (a: int) -> JobHandle[int]
reveal_type(add.submit(1).wait().result)  # seen: int
reveal_type(index.submit_many([("a",), {"path": "b"}]))  # seen: list[JobHandle[list[str]]]
reveal_type(slow.__call__)  # seen: def (Context, seconds: float) -> str
reveal_type(add.__call__)  # seen: def (a: int, b: int =) -> Coroutine[Any, Any, int]
reveal_type(shout.submit(text="x").result)  # seen: Any

Fleet(maximum=3)  # type: ignore[call-arg]
app.job(fleet="big")  # type: ignore[call-overload]
add.submit("one")  # type: ignore[arg-type]
add.submit()  # type: ignore[call-arg]
add.submit(1, c=2)  # type: ignore[call-arg]
slow.submit(Context, 1.0)  # type: ignore[call-arg, arg-type]
index.submit("a", True)  # type: ignore[call-arg]
add.using(prioritee=9)  # type: ignore[call-arg]
app.job(retries=3)  # type: ignore[call-overload]
slow(1.0)  # type: ignore[call-arg, arg-type]


async def asynchronously() -> None:
    job = await add.submit_async(1, b=2)
    reveal_type((await job.wait_async()).result)  # seen: int
    reveal_type(await add(1))  # seen: int


def transactionally(connection: object) -> None:
    reveal_type(app.submit_in(connection, index, "a", deep=True))  # seen: JobHandle[list[str]]
    reveal_type(app.submit_in(connection, add.using(key="k"), 1).wait().result)  # seen: int
    app.submit_in(connection, add, "one")  # type: ignore[arg-type]
