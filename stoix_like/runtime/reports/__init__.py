"""Reports: comparisons as text and JSON, runs as one HTML file. Imports console, results and figures."""
