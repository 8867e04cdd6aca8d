"""All that touches files, clocks, devices, processes and terminals, in rooms. docs/architecture.md draws them."""
