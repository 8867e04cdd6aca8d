"""Devices, the compile cache, the processes of one run. Imports console."""
