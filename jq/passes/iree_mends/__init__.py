"""Mends: passes that are there because of defects of IREE (see `mend`)."""
