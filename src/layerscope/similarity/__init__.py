"""Which layers represent the same thing? `compare`, its measures, blocks and localization."""
