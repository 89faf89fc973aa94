"""`penstock jobs`: everything a client can do with jobs."""

from penstock.cli.commands import CommandGroup

jobs = CommandGroup(
    name="jobs",
    help="Submit jobs, look at them, and stop them.",
    examples=("penstock jobs submit thumbnail url=cat.png --wait", "penstock jobs list --state failed"),
    lazy={
        "submit": ("penstock.cli.jobs.submit:submit", "Submit a job; with --wait, print its result."),
        "list": ("penstock.cli.jobs.page:page", "List jobs, newest first."),
        "show": ("penstock.cli.jobs.show:show", "Show everything about jobs."),
        "watch": ("penstock.cli.jobs.watch:watch", "Follow jobs until they end."),
        "logs": ("penstock.cli.jobs.logs:logs", "Print what a job wrote."),
        "output": ("penstock.cli.jobs.output:output", "Download an output file of a job."),
        "cancel": ("penstock.cli.jobs.cancel:cancel", "Cancel jobs."),
        "retry": ("penstock.cli.jobs.retry:retry", "Submit ended jobs again, as new jobs."),
    },
)
