"""Files of parameters and exported policies, which need no run. Imports console and storage."""
