"""The papers: what each experiment runs, as data, and what it claims."""
