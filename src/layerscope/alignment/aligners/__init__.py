"""The aligners: one file per method, named after it. A new file here is a new method everywhere."""
