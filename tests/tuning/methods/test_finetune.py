import pytest

from tests.helpers.models import FAMILIES, check_what_changes, tuning_cases


@pytest.mark.parametrize(
    ("family", "strategy"), [*tuning_cases(), *((family, "head-only") for family in FAMILIES), ("bert", "freeze-top-2")]
)
def test_exactly_the_right_parameters_change(family, strategy, task):
    def expected(inside, names, _):
        if strategy == "freeze-top-2":
            return {n for n in names if "layer.2." not in n and "layer.3." not in n}
        return names if strategy == "full" else inside

    check_what_changes(family, task, strategy, "finetune", None, expected)
