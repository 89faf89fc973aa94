"""Output for machines: one JSON document per line on stdout, in the shapes of the HTTP API."""

import click
import msgspec

ENCODER = msgspec.json.Encoder(order="deterministic")


def print_json(value: object) -> None:
    click.echo(ENCODER.encode(value))
