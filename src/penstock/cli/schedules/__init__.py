"""`penstock schedules`: recurring jobs."""

from penstock.cli.commands import CommandGroup

schedules = CommandGroup(
    name="schedules",
    help="Run jobs again and again: on an interval or by cron.",
    examples=(
        'penstock schedules create nightly report --cron "0 2 * * *" --timezone Europe/Berlin',
        "penstock schedules list",
    ),
    lazy={
        "create": ("penstock.cli.schedules.create:create", "Create a schedule, or replace one of the same name."),
        "list": ("penstock.cli.schedules.page:page", "List schedules with their next and last ticks."),
        "show": ("penstock.cli.schedules.show:show", "Show everything about schedules."),
        "update": ("penstock.cli.schedules.update:update", "Change a schedule; what is not named stays as it is."),
        "pause": ("penstock.cli.schedules.pause:pause", "Let no more ticks of a schedule come."),
        "resume": ("penstock.cli.schedules.resume:resume", "Let ticks of a paused schedule come again."),
        "trigger": ("penstock.cli.schedules.trigger:trigger", "Run a schedule's job now, besides its ticks."),
        "preview": ("penstock.cli.schedules.preview:preview", "Tell the next ticks, of a schedule or of a cron."),
        "backfill": ("penstock.cli.schedules.backfill:backfill", "Run past ticks of a schedule that have no job."),
        "history": ("penstock.cli.schedules.history:history", "List ticks: their jobs, or why they were skipped."),
        "delete": ("penstock.cli.schedules.delete:delete", "Delete schedules; their jobs stay."),
    },
    default="list",
)
