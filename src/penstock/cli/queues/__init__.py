"""`penstock queues`"""

from penstock.cli.commands import CommandGroup

queues = CommandGroup(
    name="queues",
    help="Look at queues, pause and resume them.",
    examples=("penstock queues list", "penstock queues pause thumbnail"),
    lazy={
        "list": ("penstock.cli.queues.depths:depths", "List queues with their depths by state."),
        "pause": ("penstock.cli.queues.pause:pause", "Let no more jobs of a queue start."),
        "resume": ("penstock.cli.queues.resume:resume", "Let jobs of a paused queue start again."),
    },
    default="list",
)
