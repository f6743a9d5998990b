"""Which blocks can a model lose? Plans, cutting, saving, the truncation curve, the skip map, advice."""
