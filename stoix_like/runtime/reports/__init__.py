"""Comparisons as text, runs as one HTML file. Imports console, telemetry, results and figures."""
