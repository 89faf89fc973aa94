"""`penstock types`"""

from penstock.cli.commands import CommandGroup

types = CommandGroup(
    name="types",
    help="Look at job types, rename and retire them.",
    examples=(
        "penstock types list",
        "penstock types alias thumbnail make_thumbnail",
        "penstock types retire thumbnail",
    ),
    lazy={
        "list": ("penstock.cli.types.page:page", "List the job types that workers have declared."),
        "alias": ("penstock.cli.types.alias:alias", "Let jobs of one type be run as another, after a rename."),
        "retire": ("penstock.cli.types.retire:retire", "Accept no more jobs of a type; see or cancel what is left."),
    },
    default="list",
)
