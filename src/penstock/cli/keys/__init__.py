"""`penstock keys`"""

from penstock.cli.commands import CommandGroup

keys = CommandGroup(
    name="keys",
    help="Make API keys, list, rotate and revoke them.",
    examples=("penstock keys create --name ops --scope admin", "penstock keys list"),
    lazy={
        "create": ("penstock.cli.keys.create:create", "Create a key and print it, this once."),
        "list": ("penstock.cli.keys.standing:standing", "List keys, without their secrets."),
        "rotate": ("penstock.cli.keys.rotate:rotate", "Replace a key by a new one with the same terms."),
        "revoke": ("penstock.cli.keys.revoke:revoke", "Revoke keys for good."),
    },
    default="list",
)
