"""Model + texts -> states or attention, streamed: the one loop over texts, and representations."""
