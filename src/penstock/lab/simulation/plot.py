"""A contest drawn as SVG: one panel for each contender, with backlog and workers over time on common scales."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from penstock.lab.simulation.contest import Contest, Result
from penstock.lab.simulation.world import Sample

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 960, 96, 54, 54, 58, 34
BACKLOG, WORKERS, INK, GRID = "#e8a33d", "#1c5fa8", "#333333", "#d9d9d9"
DRAWN_PEAK = 1.05


class Scale(Struct, frozen=True):
    """How values become places: the span of time, and the most of either series."""

    span: float
    backlog: int
    workers: int

    def x(self, at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / self.span

    def y(self, value: float, most: int, top: float) -> float:
        return top + PANEL * (1 - value / (most * DRAWN_PEAK))


def svg(contest: Contest) -> str:
    """The whole picture, as text."""
    scale = _scale(contest.samples.values())
    height = TOP + len(contest.scores.results) * (PANEL + GAP) + 10
    panels = [
        _panel(result, contest.samples[result.contender], scale, TOP + number * (PANEL + GAP) + 16)
        for number, result in enumerate(contest.scores.results)
    ]
    return "\n".join((_head(contest, height), *panels, _hours(scale, height - 12), "</svg>\n"))


def _scale(samples: Iterable[list[Sample]]) -> Scale:
    every = [sample for series in samples for sample in series]
    span = max(sample.at for sample in every) or 1.0
    return Scale(span, max(1, *(one.backlog for one in every)), max(1, *(one.workers for one in every)))


def _head(contest: Contest, height: int) -> str:
    scores = contest.scores
    told = f"{scores.trace}: {scores.jobs:,} jobs, {scores.work_seconds:,.0f} s of work"
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
    return "\n".join(
        (
            f'{begin} font-size="12" fill="{INK}">',
            f"<title>{told}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            f'<text x="{LEFT}" y="24" font-size="16">{told}</text>',
            f'<text x="{LEFT}" y="44" fill="{BACKLOG}">■ backlog (left)</text>',
            f'<text x="{LEFT + 120}" y="44" fill="{WORKERS}">■ workers (right)</text>',
        )
    )


def _panel(result: Result, samples: list[Sample], scale: Scale, top: float) -> str:
    bottom = top + PANEL
    cost = f"{result.worker_seconds:,.0f} worker-seconds, {result.to_clairvoyant:.2f} × clairvoyant"
    told = f"wait p95 {result.wait_p95_seconds:.1f} s, {cost}"
    area = _steps(samples, scale, lambda one: scale.y(one.backlog, scale.backlog, top))
    line = _steps(samples, scale, lambda one: scale.y(one.workers, scale.workers, top))
    end = scale.x(samples[-1].at)
    return "\n".join(
        (
            f'<text x="{LEFT}" y="{top - 5}"><tspan font-weight="bold">{result.contender}</tspan>  {told}</text>',
            f'<path d="M{LEFT} {bottom}{area}H{end:.1f}V{bottom}Z" fill="{BACKLOG}" fill-opacity="0.55"/>',
            f'<path d="M{LEFT} {bottom}{line}H{end:.1f}" fill="none" stroke="{WORKERS}"/>',
            f'<path d="M{LEFT} {bottom}H{WIDTH - RIGHT}" stroke="{GRID}"/>',
            f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end" fill="{BACKLOG}">{scale.backlog}</text>',
            f'<text x="{WIDTH - RIGHT + 6}" y="{top + 10}" fill="{WORKERS}">{scale.workers}</text>',
        )
    )


def _steps(samples: list[Sample], scale: Scale, height: Callable[[Sample], float]) -> str:
    """A path that goes along and then up or down, without the points that change nothing."""
    parts, last = [], ""
    for one in samples:
        if (level := f"{height(one):.1f}") != last:
            parts.append(f"H{scale.x(one.at):.1f}V{level}")
            last = level
    return "".join(parts)


def _hours(scale: Scale, y: float) -> str:
    unit, name = (3600.0, "h") if scale.span > 7200 else (60.0, "min") if scale.span > 120 else (1.0, "s")
    places = [scale.span * part / 4 for part in range(5)]
    return "\n".join(
        f'<text x="{scale.x(at):.0f}" y="{y}" text-anchor="middle">{at / unit:.3g} {name}</text>' for at in places
    )
