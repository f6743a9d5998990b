"""Rules that propose plans to `ls.advise`: one file per rule, found by its name."""
