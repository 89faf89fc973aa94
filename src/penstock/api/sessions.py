"""Sessions: a browser shows an API key once and gets a cookie, which holds a key of its own for half a day."""

from datetime import timedelta

from msgspec.structs import replace

from penstock import __version__
from penstock.api.cookies import read_session, session_cookie, session_token
from penstock.api.operation import Answer, operation
from penstock.api.request import ApiReply, ApiRequest, Headers, json_reply
from penstock.engine.keys import bearer
from penstock.model.keys import ApiKey, KeyId, KeyScope
from penstock.model.wire.keys import KeyItem
from penstock.model.wire.sessions import SessionItem, SessionRequest

LIFETIME = timedelta(hours=12)
_NO_STORE = (b"cache-control", b"no-store")


@operation(
    "POST /v1/session",
    {201: Answer("Signed in; the cookie holds the session.", SessionItem, headers=("Set-Cookie",))},
    body=SessionRequest,
    needs_key=True,
)
async def open_session(call: ApiRequest) -> ApiReply:
    """Sign a browser in: its cookie gets a key of its own, with all scopes of the one that is shown or with fewer."""
    request = await call.json(SessionRequest)
    made = await call.engine.keys.open_session(call.shown_key(), request.scopes, LIFETIME)
    return json_reply(201, _item(call, made, made.key), _set_cookie(call, made.key))


@operation("GET /v1/session", {200: Answer("What may be done here.", SessionItem)})
async def get_session(call: ApiRequest) -> ApiReply:
    """Tell what the key that is shown, or the session of a browser, may do; without keys: everything."""
    session = None if bearer(call.header(b"authorization")) else read_session(call.scope["headers"])
    return json_reply(200, _item(call, call.key, session), (_NO_STORE,))


@operation("DELETE /v1/session", {204: Answer("Signed out.", headers=("Set-Cookie",))})
async def close_session(call: ApiRequest) -> ApiReply:
    """Sign a browser out: its session is good nowhere any more. A key that is no session is left as it is."""
    if call.key is not None and call.key.parent is not None:
        await call.engine.keys.revoke(KeyId(call.key.id))
    return ApiReply(204, headers=_set_cookie(call, None))


def _item(call: ApiRequest, key: ApiKey | KeyItem | None, session: str | None) -> SessionItem:
    everything = SessionItem(scopes=tuple(KeyScope), needs_key=call.engine.keys.required, version=__version__)
    if key is None:
        return everything
    return replace(
        everything,
        scopes=key.scopes,
        key=key.id,
        name=key.name,
        expires_at=key.expires_at,
        token=None if session is None else session_token(session),
    )


def _set_cookie(call: ApiRequest, session: str | None) -> Headers:
    """The cookie for a page that came over TLS, as its browser says, may go over TLS only."""
    secure = (call.header(b"origin") or "").startswith("https://")
    cookie = session_cookie(session, round(LIFETIME.total_seconds()), secure=secure)
    return ((b"set-cookie", cookie), _NO_STORE)


OPERATIONS = (open_session, get_session, close_session)
