"""`python -m jq`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current directory: a `json.py` there is not for us to run

from jq.cli import main

main()
