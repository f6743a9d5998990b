"""What `pretrain.py` is made of: vocabulary, corpus, objectives, families and the training loop."""
