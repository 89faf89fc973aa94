"""Signposts lead where Starlette's routes lead."""

from typing import NamedTuple

import pytest
from starlette.routing import Match, Route

from penstock.api.app import OPERATIONS, RouteTree


class At(NamedTuple):
    """A place that is only its path."""

    path: str


PLACES = [At(path) for path in dict.fromkeys(operation.path for operation in OPERATIONS)]
ROUTES = [Route(place.path, lambda: None) for place in sorted(PLACES, key=lambda place: "{" in place.path)]


def routed(path: str) -> tuple[str, dict[str, str]] | None:
    scope = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": []}
    for route in ROUTES:
        match, found = route.matches(scope)
        if match is not Match.NONE:
            return route.path, found["path_params"]
    return None


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.path)
def test_every_path_of_the_api_is_found_with_its_parts(place: At) -> None:
    path = place.path.replace("{", "some-").replace("}", ".7")
    found = RouteTree(PLACES).find(path)
    assert found is not None
    assert (found[0].path, found[1]) == routed(path)


@pytest.mark.parametrize(
    "path",
    ["", "/", "//", "/v1", "/v1/", "/v1/jobs/", "/v1/jobs//cancel", "/v1/jobs/a/b", "/v1/workers/w/outputs", "v1/jobs"],
)
def test_what_no_route_fits_is_not_found(path: str) -> None:
    assert routed(path) is None
    assert RouteTree(PLACES).find(path) is None


def test_a_varying_part_that_is_named_like_a_literal_one_is_found_too() -> None:
    assert routed("/v1/jobs/batch") == ("/v1/jobs/batch", {})
    assert routed("/v1/schedules/preview/pause") == ("/v1/schedules/{schedule}/pause", {"schedule": "preview"})
    found = RouteTree(PLACES).find("/v1/schedules/preview/pause")
    assert found == (At("/v1/schedules/{schedule}/pause"), {"schedule": "preview"})
