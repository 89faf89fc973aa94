# ruff: noqa: T201, ASYNC251 - handlers print, poll for files, and block on purpose
"""Handlers for the worker's tests. A file named after what happened tells the test, or lets the handler go on."""

import asyncio
import ctypes
import logging
import os
import subprocess
import sys
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from penstock import Cancelled, Client, Context, Penstock, Retry
from tests.watch import until_there

app = Penstock()
FOLDER = Path(os.environ.get("WORKER_APP_FOLDER", "."))
DEADLINE = 30.0


def tell(name: str, text: str = "") -> None:
    (FOLDER / f".{name}").write_text(text)
    (FOLDER / f".{name}").rename(FOLDER / name)


def wait_for(name: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not (FOLDER / name).exists() and time.monotonic() < deadline:
        time.sleep(0.01)


@app.job
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.job
def multiply(a: int, b: int = 1) -> int:
    return a * b


@app.job(isolated=True)
def pid_of_isolated() -> int:
    return os.getpid()


@app.job
async def pid() -> int:
    return os.getpid()


@app.job
async def fail(text: str) -> None:
    raise ValueError(text)


@app.job
def leave_python() -> None:
    sys.exit(3)


@app.job
async def unencodable() -> object:
    return object()


@app.job
async def sleep(name: str = "") -> str:
    """Waits to be cancelled, and cleans up."""
    tell(f"sleeping{name}")
    try:
        await asyncio.sleep(DEADLINE)
    except asyncio.CancelledError:
        tell(f"cleaned{name}")
        raise
    return "slept"


@app.job
async def wait_async(name: str) -> str:
    tell(f"waiting-{name}", str(os.getpid()))
    await until_there(FOLDER / "go")
    return name


@app.job
def check(ctx: Context) -> None:
    tell("checking")
    while True:
        ctx.check()
        time.sleep(0.01)


@app.job
def ignore_checks() -> None:
    tell("ignoring")
    try:
        while True:
            time.sleep(0.01)
    except Cancelled:
        tell("interrupted")
        raise


@app.job
def swallow() -> None:
    tell("swallowing")
    while True:
        try:
            time.sleep(DEADLINE)
        except BaseException:  # noqa: BLE001, S112
            continue


@app.job
async def block(seconds: float = DEADLINE) -> str:
    """Blocks the event loop."""
    tell("blocking", str(os.getpid()))
    time.sleep(seconds)
    return "awake"


@app.job
async def hold_the_lock(seconds: int) -> str:
    """Blocks every thread of its process, as an extension does that never lets go of Python's global lock."""
    tell("blocking", str(os.getpid()))
    ctypes.PyDLL(None).sleep(seconds)
    return "awake"


@app.job
async def exit_at_once() -> None:
    os._exit(7)


@app.job
async def exit_when_told() -> None:
    tell("armed", str(os.getpid()))
    await until_there(FOLDER / "exit")
    os._exit(7)


@app.job
async def segfault() -> None:
    ctypes.string_at(0)


@app.job
def eat() -> None:
    eaten = []
    while True:
        eaten.append(bytearray(8 * 1024 * 1024))
        time.sleep(0.005)


@app.job
def speak(ctx: Context) -> None:
    print("printed")
    print("complained", file=sys.stderr)
    logging.getLogger("library").warning("warned")
    ctx.log.info("logged")
    print("no newline", end="")


@app.job
async def speak_async(word: str) -> None:
    print(f"{word} one")
    await asyncio.sleep(0)
    await asyncio.to_thread(print, f"{word} two")


@app.job
def babble() -> None:
    for number in range(1000):
        print(f"line {number}")


@app.job
def report(ctx: Context) -> None:
    for number in range(1000):
        ctx.progress(number / 1000, f"step {number}")
    wait_for("go")
    ctx.progress(1.0, "done")


@app.job
def read(ctx: Context) -> dict[str, str]:
    return {name: path.read_text() for name, path in ctx.inputs.items()}


@app.job
def copy(ctx: Context) -> list[str]:
    for name, path in ctx.inputs.items():
        ctx.outputs.write(f"copy-of-{name}", path.read_bytes(), "text/x-copy" if name == "a.txt" else None)
    tell("scratch", str(next(iter(ctx.inputs.values())).parent.parent))
    return sorted(ctx.inputs)


@app.job
def write_and_fail(ctx: Context) -> None:
    path = ctx.outputs.write("half.txt", "half")
    tell("scratch", str(path.parent.parent))
    raise ValueError("after all")


@app.job
def bad_output(ctx: Context) -> None:
    ctx.outputs.path("folder").mkdir()


@app.job
def unnameable_output(ctx: Context) -> None:
    folder = ctx.outputs.write("fine.txt", "fine").parent
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.txt")).write_text("latin")


@app.job
async def speak_and_wait(word: str) -> str:
    print(word)
    tell(f"spoke-{word}")
    await until_there(FOLDER / "go")
    print(f"{word} again")
    return word


# -- what no encoder takes

HALF = "half a character: \ud83d"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it says nothing")


class Poser(Exception):
    """Has a name, a module and notes that cannot be written down."""


Poser.__module__ = "mod\udcff"
Poser.__qualname__ = "Poser\ud800"


@app.job
async def raise_half() -> None:
    raise ValueError(HALF)


@app.job
def raise_mute() -> None:
    raise Mute


@app.job
async def raise_poser() -> None:
    error = Poser(HALF)
    error.add_note(HALF)
    raise error from Mute()


@app.job
def print_half() -> str:
    print(HALF)
    print(HALF, file=sys.stderr, end="")
    return "printed"


@app.job
async def log_badly(ctx: Context) -> str:
    logging.getLogger("library").warning("%d of them", "many")
    logging.getLogger("library\ud800").warning("%s", Mute())
    logging.addLevelName(35, HALF)
    ctx.log.log(35, "%s", HALF)
    return "logged"


@app.job
async def print_bytes() -> None:
    sys.stdout.write(b"bytes")  # type: ignore[arg-type]


NUMBERS: dict[str, Any] = {
    "decimal": Decimal("0.5"),
    "fraction": Fraction(1, 2),
    "true": True,
    "huge": 10**400,
    "nan": float("nan"),
    "text": "0.5",
    "nothing": None,
}


@app.job
async def progress_of(ctx: Context, number: str) -> str:
    ctx.progress(NUMBERS[number])
    return "reported"


@app.job
def progress_says(ctx: Context, text: bool) -> str:
    ctx.progress(0.5, HALF if text else 42)  # type: ignore[arg-type]
    return "reported"


@app.job
async def return_half() -> str:
    return HALF


@app.job
async def return_raw() -> object:
    return {"raw": msgspec.Raw(b"{"), "more": msgspec.Raw(b'"\xff"')}


@app.job
async def return_nan() -> dict[str, Any]:
    return {"items": [{"price": 1.0}] * 3 + [{"price": float("nan")}]}


@app.job
async def return_text_for_number() -> int:
    return "twelve"  # type: ignore[return-value]


@app.job(isolated=True)
def return_infinity_isolated() -> float:
    return float("-inf")


@app.job
async def return_too_much() -> str:
    return "x" * 100_000_000


@app.job
def output_of_type(ctx: Context, kind: str) -> None:
    ctx.outputs.write("a.txt", "a", {"number": 5, "half": HALF, "words": "no type"}[kind])  # type: ignore[arg-type]


@app.job
def output_types_by_hand(ctx: Context) -> str:
    ctx.outputs.write("a.txt", "a")
    ctx.outputs.content_types["a.txt"] = 5  # type: ignore[assignment]
    return "written"


@app.job
def output_named_half(ctx: Context) -> None:
    ctx.outputs.path(HALF)


@app.job(retry=Retry.none())
def misbehave(ctx: Context, how: str, codes: list[int]) -> object:  # noqa: C901 - a case for each way
    """Do something with a text that JSON cannot carry here, which is why it comes in code points."""
    text = "".join(map(chr, codes))
    match how:
        case "raise":
            raise ValueError(text)
        case "class":
            raise type("Odd", (Exception,), {"__module__": text, "__qualname__": text})
        case "print":
            print(text)
            print(text, file=sys.stderr)
        case "log":
            logging.getLogger(text).warning(text, text)
        case "progress":
            ctx.progress(Decimal("0.5"), text)
        case "return":
            return text
        case "key":
            return {text: [text]}
        case "output":
            Path(ctx.outputs.path("a.txt").parent, text).write_text(text)
        case "content type":
            ctx.outputs.write("a.txt", "", text)
        case "content type by hand":
            ctx.outputs.write(text, "")
            ctx.outputs.content_types[text] = text
    return how


@app.job
async def scribble(text: str) -> str:
    """Writes where only Penstock should: on the line to the agent."""
    os.write(int(sys.argv[1]), text.encode("latin-1"))
    await asyncio.sleep(DEADLINE)
    return "too late"


# -- what surrounds a handler


@app.job
def surroundings() -> list[str]:
    """Everything that it and its children find in their environment."""
    child = subprocess.run(["/usr/bin/env"], capture_output=True, check=True).stdout
    inherited = Path("/proc/self/environ").read_bytes().replace(b"\0", b"\n")
    return [f"{name}={value}" for name, value in os.environ.items()] + (child + inherited).decode().splitlines()


@app.job
def submit_child(elsewhere: str) -> list[str]:
    with Client(elsewhere, patience=0) as other:
        other.submit("add", {"a": 1})
    return [add.submit(1).id, asyncio.run(add.submit_async(2)).id]


SHELL = "/bin/sh"
app.command("env", [SHELL, "-c", "env >&2"])
app.command(
    "shout",
    [SHELL, "-c", 'tr a-z A-Z; echo out; echo err >&2; echo "{\\"got\\": \\"$WORD$SECRET\\"}" > "$PENSTOCK_RESULT"'],
    env={"WORD": "declared"},
)
app.command("break", [SHELL, "-c", "echo the reason >&2; exit 4"])
app.command("missing", ["/nonexistent/program"])
app.command(
    "convert",
    [SHELL, "-c", 'for f in "$PENSTOCK_INPUTS"/*; do cp "$f" "$PENSTOCK_OUTPUTS/$(basename "$f").html"; done'],
)
STUBBORN = "trap '' TERM; echo $$ > .stubborn; mv .stubborn stubborn; while :; do sleep 0.05; done"
app.command("stubborn", [SHELL, "-c", f"cd {FOLDER}; {STUBBORN}"])
app.command("null-byte", [SHELL, "-c", "a\0b"])
app.command("not-a-number", [SHELL, "-c", 'echo "{\\"prices\\": [1, NaN]}" > "$PENSTOCK_RESULT"'])
app.command("too-much", [SHELL, "-c", 'truncate -s 100M "$PENSTOCK_RESULT"'])
app.command("not-json", [SHELL, "-c", 'echo "{" > "$PENSTOCK_RESULT"'])
