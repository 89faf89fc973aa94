"""Metrics as Prometheus reads them: families of samples, written in its text format."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.engine.meters import Histogram

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[str, Labels, float]
"""What follows the family's name, the labels, and the value."""


class Family(Struct, frozen=True):
    """The samples of one name: what they measure, in one sentence."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str

    def text(self, samples: Iterable[Sample]) -> str:
        """Head and lines; nothing at all without samples."""
        lines = [f"{self.name}{suffix}{_labels(labels)} {value:.16g}\n" for suffix, labels, value in samples]
        head = f"# HELP {self.name} {self.about}\n# TYPE {self.name} {self.kind}\n"
        return f"{head}{''.join(lines)}" if lines else ""


def one(value: float) -> Iterable[Sample]:
    """The only sample of a family without labels."""
    return (("", {}, value),)


def labelled(name: str, values: Mapping[str, float]) -> Iterator[Sample]:
    """A sample for each value of one label."""
    for label, value in values.items():
        yield "", {name: label}, value


def histogram(labels: Labels, measured: Histogram) -> Iterator[Sample]:
    """The samples of one histogram."""
    for bound, count in measured.buckets():
        yield "_bucket", {**labels, "le": bound}, count
    yield "_sum", labels, measured.seconds
    yield "_count", labels, sum(measured.counts)


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
