"""`python -m jq`."""

from jq.cli import main

main()
