# %% [markdown]
# # Cut: which blocks can go
#
# A tuned MiniLM on `pydocs`: the head on every layer, every span of blocks left out, and advice that is scored on rows
# which did not choose it.

# %%
from IPython.display import Image

import layerscope as ls

options = {
    "learning_rate": 3e-4,
    "batch": 16,
    "epochs": 2,
    "train_limit": 480,
    "validation_limit": 200,
    "max_length": 24,
}
training = ls.tune("demo:minilm", "pydocs", strategy="full", **options)
model = training.path / "checkpoint"
print(training)

# %% [markdown]
# **The head on every layer.** UNTUNED trains nothing. TUNED trains the head further on each frozen layer.

# %%
short = {"limit": 300, "max_length": 24}
untuned = ls.truncation_curve(model, "pydocs", **short)
tuned = ls.truncation_curve(model, "pydocs", mode="tuned", train_limit=480, epochs=10, learning_rate=3e-3, **short)
curves = ls.Truncation.together({"UNTUNED": untuned, "TUNED": tuned})
print(curves.frame.pivot(index="layer", columns="curve", values="score").round(3))
curves.plot("curve.png")
Image("curve.png", width=480)

# %% [markdown]
# **Without a span of blocks.** Every contiguous span, nothing trained; what spans share is run once.

# %%
spans = ls.skip_map(model, "pydocs", **short)
spans

# %% [markdown]
# **Advice.** Half of the rows choose, the other half score.

# %%
advice = ls.advise(model, "pydocs", tolerance=0.03, evaluations=20, **short)
print(advice)

# %% [markdown]
# **Save it.** The score goes on the card of the checkpoint. The folder is reopened and compared before `save` returns;
# plain transformers opens it.

# %%
from transformers import AutoModelForSequenceClassification

folder = ls.save(advice.model, "small", scores=advice.score)
small = AutoModelForSequenceClassification.from_pretrained(folder)
print(small.config.num_hidden_layers, "blocks,", f"{small.num_parameters():,} parameters")
