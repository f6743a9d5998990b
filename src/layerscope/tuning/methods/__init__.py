"""The methods of tuning: one file per method, named after it. A new method is a new file here and its test."""
