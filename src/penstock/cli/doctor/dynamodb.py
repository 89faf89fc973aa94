"""A table of DynamoDB: whether it answers, has all its parts, and may be used with the credentials there are."""

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.cli.doctor.findings import Finding, fail, ok, warn
from penstock.config import Settings
from penstock.model.clock import SystemClock
from penstock.model.errors import InvalidSetting, PenstockError
from penstock.model.shards import ShardMember

if TYPE_CHECKING:
    from penstock.store.dynamodb.migrate import TableShape

SKEW = timedelta(minutes=4)
"""AWS refuses requests that are signed by a clock that differs by five minutes. Smaller differences do not matter."""


async def examine_table(name: str, member: ShardMember, settings: Settings) -> Finding:
    """Only reads, and writes that are refused: the doctor creates nothing."""
    from penstock.store.dynamodb.address import TableAddress
    from penstock.store.dynamodb.migrate import connect

    try:
        creates = TableAddress.parse(member.url).create and settings.store.migrate
        async with connect(member.url) as table:
            return await _examine(name, table, creates=creates)
    except InvalidSetting as error:
        return fail(name, error.message, "correct the URL, or set AWS_REGION")
    except PenstockError as error:
        remedy = "see AWS_REGION, AWS_PROFILE or the role of this machine, and AWS_ENDPOINT_URL_DYNAMODB if it is set"
        return fail(name, error.message, remedy)


async def _examine(name: str, table: "TableShape", *, creates: bool) -> Finding:
    status = await table.status()
    where = f"table {table.name!r} at {table.endpoint}"
    if status.wrong:
        return fail(name, f"{where} is none of Penstock's: {'; '.join(status.wrong)}", "name another table")
    if status.missing and not creates:
        return fail(name, f"{where} lacks: {', '.join(status.missing)}", "run: penstock db migrate")
    if not status.present:
        return warn(name, f"there is no {where}", "the next start creates it; or now: penstock db migrate")
    if denied := await table.find_denied():
        return fail(name, "; ".join(denied), "add these actions to the policy of this user or role")
    if status.missing:
        return warn(name, f"{where} lacks: {', '.join(status.missing)}", "run: penstock db migrate")
    return await _examine_clock(name, table, where)


async def _examine_clock(name: str, table: "TableShape", where: str) -> Finding:
    told = await table.now()
    skew = timedelta(0) if told is None else abs(told - SystemClock().now())
    if skew > SKEW:
        return warn(name, f"its clock differs from ours by {skew.total_seconds():.0f} s", "run NTP: AWS will refuse us")
    return ok(name, f"{where} answers and has all its parts")
