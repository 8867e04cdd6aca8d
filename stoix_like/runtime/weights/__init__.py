"""Files of parameters and exported policies, which need no run. Imports no other room of runtime."""
