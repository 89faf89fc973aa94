"""The colours of the page: each can be read where it stands, and no two states are told apart by colour alone."""

import re
from itertools import combinations

import pytest

from tools.page import PAGE

STYLE = (PAGE / "style.css").read_text("utf-8")
STATES = ("scheduled", "queued", "running", "succeeded", "failed", "cancelled", "expired")
TEXT = ("ink", "muted", "link", "accent", *STATES)
LEAST_DISTANCE = 0.055
"""Of two states in OKLab, for whoever sees them; shapes tell them apart besides."""
# Machado, Oliveira and Fernandes 2009, severity 1: what people with each kind of colour blindness see of linear RGB.
SIGHTS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
Rgb = tuple[float, float, float]


def tokens(selector: str) -> dict[str, str]:
    block = STYLE.partition(f"{selector} {{")[2].partition("}")[0]
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))


LIGHT = tokens(":root")
DARK = tokens(':root[data-theme="dark"]')


def linear(colour: str) -> Rgb:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return red, green, blue


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def oklab(colour: Rgb) -> Rgb:
    red, green, blue = (max(0.0, one) for one in colour)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def seen(colour: str, sight: str) -> Rgb:
    rgb = linear(colour)
    red, green, blue = (sum(part * one for part, one in zip(row, rgb, strict=True)) for row in SIGHTS[sight])
    return oklab((red, green, blue))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_every_surface(theme: dict[str, str]) -> None:
    for name in TEXT:
        for surface in ("surface", "sunken"):
            assert contrast(theme[name], theme[surface]) >= 4.5, (name, surface)
    assert contrast(theme["on-accent"], theme["accent"]) >= 4.5
    assert contrast(theme["edge"], theme["surface"]) >= 3.0


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_states_are_told_apart_however_colours_are_seen(theme: dict[str, str], sight: str) -> None:
    for one, other in combinations(STATES, 2):
        pair = zip(seen(theme[one], sight), seen(theme[other], sight), strict=True)
        assert sum((a - b) ** 2 for a, b in pair) ** 0.5 >= LEAST_DISTANCE, (one, other)


def test_the_dark_colours_are_the_same_whether_chosen_or_of_the_system() -> None:
    assert tokens(':root:not([data-theme="light"])') == DARK
    assert set(DARK) == set(LIGHT)
