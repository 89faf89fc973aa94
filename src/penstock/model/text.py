"""Text from user code, made safe to send and to store."""


def readable(value: object) -> str:
    """The text of any value: plain Unicode, with escapes for what UTF-8 cannot hold. Never raises.

    Error messages of user code may hold lone surrogates, and the `__str__` of its classes may fail.
    """
    try:
        text = str(value)
    except BaseException as error:  # noqa: BLE001 - whatever a class of the user's raises
        text = f"<a {type(value).__name__} whose text cannot be had: {type(error).__name__}>"
    return text.encode("utf-8", "backslashreplace").decode()
