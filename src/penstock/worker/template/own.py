"""The template that belongs to this process, if it was itself forked from one."""

from penstock.worker.template.asking import PreforkClient

_own: PreforkClient | None = None


def own_prefork() -> PreforkClient | None:
    """What this process's executors are forked from; None: they are started anew."""
    return _own


def use_prefork(template: PreforkClient) -> None:
    global _own
    _own = template


def without_prefork() -> None:
    """Let go of it: executors are started anew from now on."""
    global _own
    if _own is not None:
        _own.close()
    _own = None
