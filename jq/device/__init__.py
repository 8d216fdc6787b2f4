"""Answers of a device about a model, before there is one at hand: refusals, cost, golden vectors.

The device is a target file (`jq.target.device_table`); shapes suffice without calibration data."""
