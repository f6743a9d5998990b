# %% [markdown]
# # Tune: which blocks are worth it
#
# nu and probes before anything is trained, then a few strategies really trained, with two seeds each.

# %%
from IPython.display import Image

import layerscope as ls

choice = ls.recommend("demo:minilm", "pydocs", limit=800, max_length=24)
choice.plot("choice.png")
print(choice)
Image("choice.png", width=480)

# %% [markdown]
# nu is least where classes lie far apart for their size. What would each strategy cost?

# %%
columns = ["strategy", "resolved", "trainable", "forward", "backward"]
print(choice.strategies.frame[columns].to_string(index=False))

# %% [markdown]
# `forward` and `backward` are multiply-adds per token. Now some of them are trained, with two seeds each, so that there
# is a spread.

# %%
options = {
    "batch": 16,
    "train_limit": 480,
    "validation_limit": 200,
    "max_length": 24,
    "learning_rate": 5e-4,
    "epochs": 2,
}
study = ls.strategy_study(
    "demo:minilm", "pydocs", strategies=["(6, 6, 6)", "(5, 6, 6)", "(3, 4, 4)", "head-only"], seeds=[0, 1], **options
)
print(study.frame[["strategy", "tuned_layers", "score", "error"]].round(3).to_string(index=False))
study.plot("study.png")
Image("study.png", width=480)

# %% [markdown]
# All strategies have the same learning rate here, which is not fair to `head-only`: let each find its own
# (`learning_rate=[...]` tries several) before you believe a ranking.
