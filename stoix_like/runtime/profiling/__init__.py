"""An update from inside: operations counted from its text, times by phase from a trace. Imports no other room."""
