"""`penstock autoscale`: how a fleet would scale."""

from penstock.cli.commands import CommandGroup

autoscale = CommandGroup(
    name="autoscale",
    help="Try a scaling policy on a trace, before it has a fleet.",
    examples=("penstock autoscale simulate --pattern burst",),
    lazy={
        "simulate": (
            "penstock.lab.simulation.command:simulate",
            "Simulate a fleet beside its rivals, on a pattern or a trace.",
        ),
        "export": ("penstock.lab.simulation.command:export", "Write the history of ended jobs as a trace."),
    },
)
