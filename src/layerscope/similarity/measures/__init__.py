"""The measures: one file per family. Every function here enters itself into the registry."""
