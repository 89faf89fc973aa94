"""What a type checker sees of an app. Never run; `test_app.py` has mypy read it and compares with the comments.

`# type: T` is what mypy must reveal on that line, `# refused: code` the error it must report there.
"""

from typing import reveal_type

from penstock import Context, Penstock, Retry

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


shout = app.command("shout", ["tr", "a-z", "A-Z"])

reveal_type(add.submit)  # type: def (a: int, b: int =) -> JobHandle[int]
reveal_type(slow.submit)  # type: def (seconds: float) -> JobHandle[str]
reveal_type(index.submit)  # type: def (path: str, *, deep: bool =) -> JobHandle[list[str]]
reveal_type(nothing.submit)  # type: def () -> JobHandle[None]
reveal_type(index.using(priority=9, delay=5).submit)  # type: def (path: str, *, deep: bool =) -> JobHandle[list[str]]
reveal_type(add.submit(1).wait().result)  # type: int
reveal_type(index.submit_many([("a",), {"path": "b"}]))  # type: list[JobHandle[list[str]]]
reveal_type(slow.__call__)  # type: def (Context, seconds: float) -> str
reveal_type(add.__call__)  # type: def (a: int, b: int =) -> Coroutine[Any, Any, int]
reveal_type(shout.submit(text="x").result)  # type: Any

add.submit("one")  # refused: arg-type
add.submit()  # refused: call-arg
add.submit(1, c=2)  # refused: call-arg
slow.submit(Context, 1.0)  # refused: call-arg arg-type
index.submit("a", True)  # refused: call-arg
add.using(prioritee=9)  # refused: call-arg
app.job(retries=3)  # refused: call-overload
slow(1.0)  # refused: call-arg arg-type


async def asynchronously() -> None:
    job = await add.submit_async(1, b=2)
    reveal_type((await job.wait_async()).result)  # type: int
    reveal_type(await add(1))  # type: int
