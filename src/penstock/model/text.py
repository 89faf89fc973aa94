"""Text that comes from user code, as it can be passed on."""


def readable(value: object) -> str:
    """The text of any value: plain Unicode, with escapes for what UTF-8 cannot hold. Never raises.

    User code has error messages with halves of characters in them, and classes whose own `__str__` fails.
    """
    try:
        text = str(value)
    except BaseException as error:  # noqa: BLE001 - whatever a class of the user's raises
        text = f"<a {type(value).__name__} whose text cannot be had: {type(error).__name__}>"
    return text.encode("utf-8", "backslashreplace").decode()
