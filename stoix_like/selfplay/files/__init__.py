"""What is on disk of a pipeline: folders, manifests, shards, records."""
