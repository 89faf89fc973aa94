"""How a server leaves without breaking a connection that was just made to it."""

import ctypes
import socket
import struct
from contextlib import suppress

SO_ATTACH_FILTER = 26
"""Of Linux; Python does not name it."""

TCP_FLAGS = 13
SYN = 0x02
_LOAD_BYTE, _JUMP_IF_SET, _RETURN = 0x30, 0x45, 0x06
_DROP, _PASS = 0, 0xFFFFFFFF

_PROGRAM = b"".join(
    struct.pack("HBBI", code, if_so, if_not, value)
    for code, if_so, if_not, value in (
        (_LOAD_BYTE, 0, 0, TCP_FLAGS),
        (_JUMP_IF_SET, 0, 1, SYN),
        (_RETURN, 0, 0, _DROP),
        (_RETURN, 0, 0, _PASS),
    )
)


def refuse_new_connections(listener: socket.socket) -> None:
    """Let the kernel begin no more connections on a listening socket, while those that it has begun are still accepted.

    Closing it would break what waits to be accepted, with requests that may have been sent already; whoever connects
    now gets no answer, sent nothing, and may safely go elsewhere. Does nothing where the kernel cannot.
    """
    program = ctypes.create_string_buffer(_PROGRAM, len(_PROGRAM))
    with suppress(OSError):
        where = struct.pack("HL", len(_PROGRAM) // 8, ctypes.addressof(program))
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, where)
