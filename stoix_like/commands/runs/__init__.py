"""Commands that train runs, and that look at them."""
