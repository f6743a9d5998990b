# %% [markdown]
# # Compare: what tuning does to the layers
#
# The pictures of Phang et al. (2021) on a small real model: MiniLM, tuned twice on `pydocs` with different seeds. How
# alike are the layers before tuning, after it, across it, and between seeds?

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
trainings = ls.tune("demo:minilm", "pydocs", strategy="full", seeds=[0, 1], **options)
print(trainings)

# %% [markdown]
# Rows are the summary token of 400 validation texts, as in the paper. One pass over the texts for each pair of models.

# %%
one, two = (training.path / "checkpoint" for training in trainings.trainings)
where = {"task": "pydocs", "pool": "cls", "measure": "cka", "limit": 400, "max_length": 24}
pictures = {
    "ORIG - ORIG": ls.compare("demo:minilm", names=["ORIG"], **where),
    "FT - ORIG": ls.compare(one, "demo:minilm", names=["FT", "ORIG"], **where),
    "FT - FT": ls.compare(one, names=["FT"], **where),
    "FT[1] - FT[2]": ls.compare(one, two, names=["FT[1]", "FT[2]"], **where),
}
ls.panels(pictures, "pictures.png")
Image("pictures.png", width=800)

# %% [markdown]
# Hatched cells have no value: at layer 0 the summary token is the same for every text.

# %%
for name, similarity in pictures.items():
    top = similarity.values[4:, 4:]
    print(f"{name:14} mean CKA of layers 4..6: {top.mean():.2f}")

# %% [markdown]
# Does the tuned model fall into groups of layers? Every model has some best split, so its p-value is against gradual
# change: steps from layer to layer that vary smoothly or at random.

# %%
for name in ("ORIG - ORIG", "FT - FT"):
    print(f"{name:12} {ls.layer_blocks(pictures[name]).findings()[0]}")

# %% [markdown]
# The finer question: does a text keep its nearest texts? And what would chance give?

# %%
near = ls.compare(one, "demo:minilm", **(where | {"measure": "mutual_knn"}), baseline=True)
for layer in range(1, 7):
    kept, chance = near.values[layer, layer], near.baseline[layer, layer]
    print(f"layer {layer}: {kept:.2f} of the ten nearest are kept (chance {chance:.2f})")
