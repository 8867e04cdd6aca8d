"""Reports: comparisons as text and JSON, runs as one HTML file. Imports console, evaluators, results and figures."""
