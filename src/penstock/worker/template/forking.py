"""In a template: a fork whose parent is whoever asked for it."""

import os
import struct
from collections.abc import Callable

PID = struct.Struct("!q")


def fork_for_asker(answer: Callable[[int], None]) -> bool:
    """Fork; True in the new process, which is the asker's child by then. OSError if it cannot be.

    In this one `answer` is called with its number, once the asker has adopted it, and then False returned.
    """
    # The new process waits behind the gate: only when the one in between is reaped has its parent changed for sure.
    gate_out, gate_in = os.pipe()
    number_out, number_in = os.pipe()
    between = os.fork()
    if between == 0:
        if _fork_and_end(number_in) == 0:
            _wait_at_gate(gate_out, gate_in, number_out, number_in)
            return True
        os._exit(0)
    os.close(gate_out)
    os.close(number_in)
    os.waitpid(between, 0)
    number = os.read(number_out, PID.size)
    os.close(number_out)
    os.close(gate_in)
    if len(number) < PID.size:
        raise OSError("there is no room for another process")
    answer(PID.unpack(number)[0])
    return False


def _fork_and_end(number_in: int) -> int:
    """In the process between: 0 in the new one; in itself, the number it has told on."""
    try:
        child = os.fork()
    except OSError:
        os._exit(1)
    if child != 0:
        os.write(number_in, PID.pack(child))
    return child


def _wait_at_gate(gate_out: int, gate_in: int, *others: int) -> None:
    for descriptor in (gate_in, *others):
        os.close(descriptor)
    os.read(gate_out, 1)
    os.close(gate_out)
