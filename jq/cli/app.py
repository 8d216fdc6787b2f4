"""The command line as a whole."""


def run() -> int:
    return 0
