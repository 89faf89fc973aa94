"""One adapter per system; `python -m peers NAME COMMAND` runs it, see `__main__`."""
