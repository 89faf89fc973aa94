"""The rules of API keys, by themselves."""

import hashlib
import random
import re
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.api.access import scopes_of
from penstock.api.app import OPERATIONS
from penstock.config import ServerSettings, load
from penstock.model.errors import Invalid, InvalidSetting
from penstock.model.keys import (
    ApiKey,
    KeyId,
    KeyScope,
    authorization,
    check_terms,
    digest_of,
    new_id,
    new_secret,
    parse_token,
    proves,
    redacted,
    token_of,
)
from penstock.model.signatures import new_signing_secret

NOW = datetime(2026, 11, 15, tzinfo=UTC)
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound to it
SECRET = new_secret(random.Random(7).randbytes)
"""The same in every process: test ids are made of it."""
KEY = ApiKey(id="abcd2345", name="ops", digest=digest_of(SECRET), scopes=(KeyScope.JOBS_READ,), created_at=NOW)
TOKEN = token_of(KeyId(KEY.id), SECRET)


def test_a_secret_has_256_random_bits_and_a_key_is_written_with_its_public_id() -> None:
    asked: list[int] = []

    def random_bytes(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    id, secret = new_id(random_bytes), new_secret(random_bytes)
    assert asked == [5, 32]
    assert parse_token(token_of(id, secret)) == (id, secret)


@pytest.mark.parametrize(
    "text", ["", "pk_", "pk_abcd2345", f"pk_abcd2345_{SECRET}x", f"{TOKEN}\n", f" {TOKEN}", TOKEN.upper(), "pk_ä_ö"]
)
def test_what_is_not_written_like_a_key_is_none(text: str) -> None:
    assert parse_token(text) is None


def test_only_its_own_secret_proves_a_key_and_nothing_proves_one_that_is_not_there() -> None:
    assert KEY.digest == hashlib.sha256(SECRET.encode()).hexdigest()
    assert proves(SECRET, KEY)
    assert not proves(new_secret(secrets.token_bytes), KEY)
    assert not proves(SECRET, None)


def test_a_key_expires_at_its_instant_and_not_before() -> None:
    mortal = replace(KEY, expires_at=NOW)
    assert not mortal.expired(NOW - timedelta(milliseconds=1))
    assert mortal.expired(NOW)
    assert not KEY.expired(NOW + timedelta(days=36_500))


def test_a_scope_allows_its_own_and_admin_allows_all() -> None:
    assert KEY.allows((KeyScope.JOBS_READ,))
    assert KEY.allows((KeyScope.WORKER, KeyScope.JOBS_READ))
    assert not KEY.allows((KeyScope.JOBS_WRITE,))
    admin = replace(KEY, scopes=(KeyScope.ADMIN,))
    assert all(admin.allows((scope,)) for scope in KeyScope)


def test_a_limited_key_names_the_queues_it_is_not_for() -> None:
    assert replace(KEY, queues=("a", "b")).foreign(("c", "a", "d")) == ["c", "d"]
    assert KEY.foreign(("c",)) == []


@pytest.mark.parametrize(
    ("scopes", "queues", "word"),
    [
        ((), None, "scopes"),
        ((KeyScope.JOBS_READ,), ("a",), "queues"),
        ((KeyScope.WORKER, KeyScope.ADMIN), ("a",), "queues"),
        ((KeyScope.WORKER,), (), "queues"),
    ],
)
def test_terms_that_would_not_mean_what_they_say_are_refused(
    scopes: tuple[KeyScope, ...], queues: tuple[str, ...] | None, word: str
) -> None:
    with pytest.raises(Invalid, match=f"^{word}: "):
        check_terms(scopes, queues)


def test_the_header_shows_the_key_and_what_is_no_key_is_refused_without_being_repeated() -> None:
    assert authorization(TOKEN) == {"authorization": f"Bearer {TOKEN}"}
    assert authorization("") == {}
    with pytest.raises(Invalid) as refused:
        authorization("hunter2\r\nx-injected: 1")
    assert "hunter2" not in refused.value.message
    assert "PENSTOCK_KEY" in refused.value.message


def test_the_secret_of_a_webhook_in_a_text_is_left_out() -> None:
    secret = new_signing_secret(random.Random(7).randbytes)
    assert redacted(f"signed with {secret}, {TOKEN}") == "signed with whsec_…, pk_abcd2345_…"
    assert redacted("secrets begin with whsec_") == "secrets begin with whsec_"


def test_the_secret_of_a_key_in_a_text_is_left_out() -> None:
    assert redacted(f"sent {TOKEN}, twice {TOKEN}") == "sent pk_abcd2345_…, twice pk_abcd2345_…"
    assert redacted("job 0190a6e2 of pk_ and others") == "job 0190a6e2 of pk_ and others"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_on_loopback_no_key_is_needed_unless_the_settings_say_so(host: str) -> None:
    assert not ServerSettings(host=host).needs_keys
    assert ServerSettings(host=host, keys="required").needs_keys


@pytest.mark.parametrize(
    "host", [EVERYWHERE, "::", "10.1.2.3", "", "example.com", "127.0.0.1.example.com", "2130706433"]
)
def test_on_every_other_address_keys_are_needed(host: str) -> None:
    assert ServerSettings(host=host).needs_keys


def test_the_key_comes_from_the_environment_and_the_full_name_wins(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[worker]\nkey = 'from the file'\n")
    assert load(file, {}, {}).worker.key == "from the file"
    assert load(file, {"PENSTOCK_KEY": "short"}, {}).worker.key == "short"
    assert load(file, {"PENSTOCK_KEY": "short", "PENSTOCK_WORKER_KEY": "full"}, {}).worker.key == "full"


def test_when_keys_are_needed_is_one_of_two_words() -> None:
    with pytest.raises(InvalidSetting, match="accepted: auto or required"):
        load(None, {"PENSTOCK_SERVER_KEYS": "never"}, {})


def test_what_nobody_thought_of_is_for_admins() -> None:
    assert scopes_of("POST", "/v1/anything/{new}") == (KeyScope.ADMIN,)
    assert scopes_of("GET", "/anything") == (KeyScope.ADMIN,)


def test_only_health_and_the_document_are_for_everyone() -> None:
    assert {one.path for one in OPERATIONS if not one.scopes} == {"/healthz", "/readyz", "/openapi.json"}


def test_the_guide_lists_the_scopes() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/keys.md").read_text()
    told = re.findall(
        r"^\| `([\w:]+)` \|", guide.partition("## Scopes")[2].partition("## Worker keys")[0], re.MULTILINE
    )
    assert told == list(KeyScope)
