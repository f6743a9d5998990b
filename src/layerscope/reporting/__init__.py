"""The HTML page and the figures for papers, made of records."""
