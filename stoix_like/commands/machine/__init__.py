"""Commands about this machine: measurements, what is installed, which tasks there are."""
