"""Which loops run, and what they and their pipelines are doing. Imports files, iterations and events."""
