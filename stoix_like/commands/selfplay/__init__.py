"""Commands of pipelines and of the loops that run them."""
