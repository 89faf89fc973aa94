"""Text from users and their code: made safe to send and store, and corrected where a name is misspelled.

`penstock --help` loads this, so it imports nothing heavy.
"""

from collections.abc import Collection, Iterable

from penstock.model.errors import Invalid


def readable(value: object) -> str:
    """The text of any value: plain Unicode, with escapes for what UTF-8 cannot hold. Never raises.

    Error messages of user code may hold lone surrogates, and the `__str__` of its classes may fail.
    """
    try:
        text = str(value)
    except BaseException as error:  # noqa: BLE001 - whatever a class of the user's raises
        text = f"<a {type(value).__name__} whose text cannot be had: {type(error).__name__}>"
    return text.encode("utf-8", "backslashreplace").decode()


def suggest(name: str, known: Iterable[str]) -> str:
    """`did you mean priority?`; if no name is similar, all known names.

    Similar is also a name that it begins or ends with: `delay_seconds` for `delay`, `idempotency_key` for `key`.
    """
    # Imported on a mistake only: it would slow the start of every process that submits jobs.
    import difflib

    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1) or [one for one in known if _is_affix(one, name)]
    return f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"


def check_options(subject: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise Invalid for an unknown option: `using: there is no option prioritty; did you mean priority?`"""
    for name in given:
        if name not in known:
            raise Invalid(f"{subject}: there is no option {name}; {suggest(name, known)}")


def _is_affix(one: str, name: str) -> bool:
    return name.startswith(f"{one}_") or name.endswith(f"_{one}")
