"""What a cut model is healed by: the text itself, labels, or the whole model's answers; one file per kind of answer."""
