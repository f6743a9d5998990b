# %% [markdown]
# # Align: are two seeds the same model?
#
# MiniLM tuned twice on `pydocs`. Maps from the layers of one to those of the other, fitted on training texts and scored
# on others; then one model's states in the other's place.

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
models = {f"seed {training.job.seed}": training.path / "checkpoint" for training in trainings.trainings}
print(trainings)

# %% [markdown]
# **Layer by layer, both ways.** `relative` is the squared error over the spread of the target. Guessing the mean has 1.

# %%
study = ls.alignment_study(
    models, "pydocs", methods=["identity", "procrustes", "linear"], pairs=2, train=800, test=400, max_length=24
)
held_out = study.frame[study.frame["split"] == "test"]
print(held_out.pivot_table(index="layer", columns="method", values="relative").round(3))
study.plot("alignment.png")
Image("alignment.png", width=480)

# %% [markdown]
# **In the other's place.** A layer of the second model is replaced by the first one's, mapped. The score that is left:

# %%
one, two = models.values()
injected = ls.injection_study(
    one, two, "pydocs", layers=[2, 4, 6], methods=["identity", "linear"], limit=200, train=300, max_length=24
)
print(injected.frame.pivot(index="layer", columns="method", values="score").round(3))
alone = injected.frame.iloc[0]
print(f"alone: {alone['source_score']:.3f} and {alone['target_score']:.3f}, majority {alone['majority']:.3f}")
injected
