"""Which declaration of a job type counts."""

from datetime import UTC, datetime, timedelta

from penstock.model.declarations import (
    APPS_KEPT,
    EARLIER_COUNTS_FOR,
    EARLIER_KEPT,
    REFRESHED_AFTER,
    DeclaredType,
    Schema,
    declare,
    signature_of,
)
from penstock.model.workers import JobType

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def schema(*names: str) -> Schema:
    return {"type": "object", "properties": {name: {"type": "integer"} for name in names}}


def mail(*names: str, queue: str = "mail") -> JobType:
    return JobType(name="mail", queue=queue, params_schema=schema(*names))


def told(*declarations: tuple[JobType, datetime]) -> DeclaredType:
    known: DeclaredType | None = None
    for declared, deployed_at in declarations:
        known = declare(declared, deployed_at, known)
    assert known is not None
    return known


def shapes(known: DeclaredType) -> list[Schema]:
    return [one.params_schema for one in known.earlier.values()]


def test_of_two_declarations_the_one_deployed_later_counts_in_whatever_order_they_come() -> None:
    old, new = (mail("a"), NOON), (mail("a", "b", queue="post"), NOON + SECOND)
    for order in ((old, new), (new, old), (old, new, old)):
        counts = told(*order)
        assert (counts.queue, counts.params_schema, counts.declared_at) == ("post", schema("a", "b"), NOON + SECOND)
        assert counts.schemas(NOON, ()) == {
            signature_of(schema("a", "b")): schema("a", "b"),
            signature_of(schema("a")): schema("a"),
        }


def test_a_declaration_that_says_nothing_new_changes_nothing_for_a_while() -> None:
    known = told((mail("a"), NOON), (mail("b"), NOON + SECOND))
    assert declare(mail("a"), NOON, known) is known
    assert declare(mail("b"), NOON + REFRESHED_AFTER, known) is known
    later = declare(mail("b"), NOON + SECOND + REFRESHED_AFTER, known)
    assert (later.declared_at, later.earlier) == (NOON + SECOND + REFRESHED_AFTER, known.earlier)


def test_code_that_is_rolled_back_counts_again_and_what_it_replaced_is_known() -> None:
    known = told((mail("a"), NOON), (mail("b"), NOON + SECOND), (mail("a"), NOON + 2 * SECOND))
    assert (known.params_schema, shapes(known)) == (schema("a"), [schema("b")])


def test_only_so_many_earlier_signatures_are_known_the_newest() -> None:
    names = [f"n{number}" for number in range(EARLIER_KEPT + 3)]
    known = told(*((mail(name), NOON + number * SECOND) for number, name in enumerate(names)))
    assert shapes(known) == [schema(name) for name in reversed(names[:-1])][:EARLIER_KEPT]
    assert declare(mail("much older"), NOON, known) is known


def test_an_earlier_signature_counts_for_a_day_and_as_long_as_a_worker_has_it() -> None:
    known = told((mail("a"), NOON), (mail("b"), NOON + SECOND))
    replaced = NOON + SECOND
    assert list(known.schemas(replaced + EARLIER_COUNTS_FOR - SECOND, ()).values()) == [schema("b"), schema("a")]
    assert list(known.schemas(replaced + EARLIER_COUNTS_FOR, ()).values()) == [schema("b")]
    up = {signature_of(schema("a"))}
    assert list(known.schemas(replaced + 9 * EARLIER_COUNTS_FOR, up).values()) == [schema("b"), schema("a")]


def test_the_apps_that_have_a_type_are_known_with_when_each_was_deployed() -> None:
    known = declare(mail("a"), NOON + SECOND, None, "shop:app")
    both = declare(mail("b"), NOON, known, "billing:app")
    assert (both.params_schema, dict(both.apps)) == (
        schema("a"),
        {"shop:app": NOON + SECOND, "billing:app": NOON},
    )
    assert declare(mail("a"), NOON + SECOND, both, "shop:app") is both
    later = declare(mail("a"), NOON + REFRESHED_AFTER + SECOND, both, "shop:app")
    assert later.apps["shop:app"] == NOON + REFRESHED_AFTER + SECOND
    assert declare(mail("c"), NOON + 2 * REFRESHED_AFTER, later).apps == later.apps


def test_only_so_many_apps_of_a_type_are_known_the_newest() -> None:
    known = declare(mail("a"), NOON, None)
    for number in range(APPS_KEPT + 3):
        known = declare(mail("a"), NOON + number * SECOND, known, f"app{number}")
    assert list(known.apps) == [f"app{number}" for number in range(3, APPS_KEPT + 3)]
    assert declare(mail("a"), NOON, known, "much older") is known
