"""`penstock webhooks`: a receiver on this machine, to see what a subscription sends."""

from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import click
import msgspec
from msgspec import Struct

from penstock.cli import options, style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.format import Printer
from penstock.model.errors import InvalidSetting, UnreadableWebhook, WebhookRefused
from penstock.model.names import reason_of
from penstock.model.wire.cloudevents import TYPE_PREFIX
from penstock.webhooks import Receiver

webhooks = CommandGroup(
    name="webhooks",
    help="Receive webhooks on this machine, to try them.",
    examples=("penstock webhooks listen --port 9000",),
    lazy={"listen": ("penstock.cli.webhooks:listen", "Receive webhooks here, verify them and print their events.")},
)

SECRET_VARIABLE = "PENSTOCK_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
HOST = "127.0.0.1"
PORT = 7374
MOST_BYTES = 64 * 1024 * 1024
PATIENCE_SECONDS = 10
"""How long a sender may take for the rest of its request: there is one at a time."""


class ShownEvent(Struct, frozen=True):
    """What is printed of a CloudEvent, whatever it is about."""

    id: str
    type: str
    subject: str = ""
    time: str = ""
    data: dict[str, Any] | None = None


_shown = msgspec.json.Decoder(list[ShownEvent] | ShownEvent)


@command(
    "listen",
    "penstock webhooks listen",
    "penstock webhooks listen --port 9000 --secret whsec_…",
)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 takes a free one.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    envvar=SECRET_VARIABLE,
    show_envvar=True,
    metavar="SECRET",
    help="Secret of the subscription; two during a rotation.  [default: print without verifying]",
)
@options.as_json
def listen(*, port: int, secrets: tuple[str, ...], as_json: bool) -> None:
    """Receive webhooks here, verify them and print their events, until Ctrl-C.

    Only this machine can reach it, so it is for servers on this machine. What is not signed with the secret is answered
    with 400, everything else with 204.
    """
    receiver = Receiver(*secrets) if secrets else None
    with open_sink(port, receiver, Printer(as_json=as_json)) as sink:
        _say_how(f"http://{HOST}:{sink.server_port}/", is_verifying=receiver is not None)
        try:
            sink.serve_forever()
        except KeyboardInterrupt:
            style.say(f"{sink.received} received", err=True)


class WebhookListener(HTTPServer):
    """Answers one request at a time, and prints it."""

    def __init__(self, port: int, receiver: Receiver | None, printer: Printer) -> None:
        super().__init__((HOST, port), WebhookHandler)
        self.receiver = receiver
        self.printer = printer
        self.received = 0


def open_sink(port: int, receiver: Receiver | None, printer: Printer) -> WebhookListener:
    """A listener on this machine; InvalidSetting if the port is taken."""
    try:
        return WebhookListener(port, receiver, printer)
    except OSError as error:
        wrong = f"--port: cannot listen on {HOST}:{port} ({error.strerror})"
        raise InvalidSetting(f"{wrong}; choose another (0 takes a free one)") from None


class WebhookHandler(BaseHTTPRequestHandler):
    """One connection of a sender."""

    server: WebhookListener
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_SECONDS

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self._answer(411)
            return
        try:
            events = read_events(self.server.receiver, dict(self.headers.items()), self.rfile.read(int(length)))
        except WebhookRefused as error:
            style.say(style.bad(f"refused: {error.message}"), err=True)
            self._answer(400)
            return
        self._print(events)
        self._answer(204)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what came in is printed as what it is."""

    def _print(self, events: list[ShownEvent]) -> None:
        is_verified = self.server.receiver is not None
        self.server.received += len(events)
        for event in events:
            self.server.printer.say(event, event_line(event, is_verified=is_verified))

    def _answer(self, status: int) -> None:
        # One connection at a time is served, so none may be kept.
        self.close_connection = True
        self.send_response(status)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", "0")
        self.end_headers()


def read_events(receiver: Receiver | None, headers: Mapping[str, str], body: bytes) -> list[ShownEvent]:
    """The events of a request, verified if there is a receiver; WebhookRefused says what is wrong with it."""
    if receiver is not None:
        receiver.read(headers, body)
    try:
        shown = _shown.decode(body)
    except msgspec.DecodeError as error:
        raise UnreadableWebhook(f"the body is no CloudEvent and no batch of them: {error}") from None
    return shown if isinstance(shown, list) else [shown]


def event_line(event: ShownEvent, *, is_verified: bool) -> str:
    """An event for people: when, which job, from which state to which. What a stranger sent is made harmless."""
    facts = (event.data or {}).get("event", {})
    moved = f"{facts.get('type')} {facts.get('before') or 'new'} → {facts.get('after')}"
    text = moved if event.type.startswith(TYPE_PREFIX) else event.type
    mark = style.good("verified") if is_verified else style.warned("not verified")
    return f"{mark}  {reason_of(event.time)}  {reason_of(event.id)}  {reason_of(text)}"


def _say_how(url: str, *, is_verifying: bool) -> None:
    style.say(f"listening on {url} until Ctrl-C", err=True)
    style.hint(f"have events sent here with: penstock subscriptions create NAME {url}")
    if not is_verifying:
        style.hint(f"to verify them, give its secret: --secret or {SECRET_VARIABLE}")
