"""Are two models the same up to a change of coordinates, and can one stand in for the other?"""
