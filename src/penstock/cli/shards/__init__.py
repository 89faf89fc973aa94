"""`penstock shards`: the databases that jobs live in."""

from penstock.cli.commands import CommandGroup

shards = CommandGroup(
    name="shards",
    help="Look at shards; add, weigh, drain and remove them.",
    examples=("penstock shards list", "penstock shards add postgresql://db4/penstock", "penstock shards drain 2"),
    lazy={
        "list": ("penstock.cli.shards.standing:standing", "List shards and how they are."),
        "add": ("penstock.cli.shards.add:add", "Add a shard while everything runs."),
        "set": ("penstock.cli.shards.set:set_", "Change a shard's weight, state or place in the ring."),
        "drain": ("penstock.cli.shards.drain:drain", "Let no more new jobs go to a shard."),
        "remove": ("penstock.cli.shards.remove:remove", "Remove a drained shard."),
    },
    default="list",
)
