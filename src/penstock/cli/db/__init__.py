"""`penstock db`"""

from penstock.cli.commands import CommandGroup

db = CommandGroup(
    name="db",
    help="Bring the tables of PostgreSQL shards up to date, see where they stand, and say that a shard was restored.",
    examples=("penstock db status", "penstock db migrate --url postgresql://penstock@db1/penstock"),
    lazy={
        "status": ("penstock.cli.db.status:status", "Show which migrations each shard has and lacks."),
        "migrate": ("penstock.cli.db.migrate:migrate", "Apply what each shard lacks."),
        "restored": ("penstock.cli.db.restored:restored", "Say that shards were put back from a backup."),
        "sql": ("penstock.cli.db.sql:sql", "Print the SQL that migrate would run."),
    },
    default="status",
)
