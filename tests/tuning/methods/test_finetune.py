import pytest
import zoo
from quick import cases, check_what_changes


@pytest.mark.parametrize(("family", "strategy"), [*cases(), *((family, "head-only") for family in zoo.FAMILIES)])
def test_exactly_the_right_parameters_change(family, strategy, task):
    def expected(inside, names, _):
        return names if strategy == "full" else inside

    check_what_changes(family, task, strategy, "finetune", None, expected)
