"""Code that submits jobs somewhere inside."""

from jobs import invoice


def sell(item: str) -> None:
    invoice.submit(item)
