"""Devices, the compile cache and the process group of a run. Imports console."""
