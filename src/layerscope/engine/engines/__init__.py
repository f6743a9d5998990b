"""Where jobs run, one file per engine."""
