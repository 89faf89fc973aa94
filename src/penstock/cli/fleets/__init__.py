"""`penstock fleets`: workers that come with work and go without it."""

from penstock.cli.commands import CommandGroup

fleets = CommandGroup(
    name="fleets",
    help="Look at fleets of workers; bound, pause and scale them.",
    examples=("penstock fleets list", "penstock fleets show thumbnail", "penstock fleets set thumbnail --max 40"),
    lazy={
        "list": ("penstock.cli.fleets.standing:standing", "List fleets: their queues, workers and bounds."),
        "show": ("penstock.cli.fleets.show:show", "Show a fleet and its latest decisions, with reasons."),
        "set": ("penstock.cli.fleets.set:set_", "Change a fleet's bounds or policy while everything runs."),
        "pause": ("penstock.cli.fleets.pause:pause", "Leave fleets as they are: start and stop nobody."),
        "resume": ("penstock.cli.fleets.resume:resume", "Look after paused fleets again."),
        "scale": (
            "penstock.cli.fleets.scale:scale",
            "Let a fleet have so many workers by hand, or as its policy says.",
        ),
    },
    default="list",
)
