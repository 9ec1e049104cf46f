"""What every check of an exercise must do, for the tests of helpers.check."""

import pytest

from helpers import check


def assert_judges(function, right, wrong, capsys, *arguments, **keywords):
    """A circle where unanswered, a tick for the right answer, a hint for each wrong one."""
    function(..., *arguments, **keywords)
    assert capsys.readouterr().out.startswith("○")
    function(right, *arguments, **keywords)
    assert capsys.readouterr().out.startswith("✓")
    for answer in wrong:
        with pytest.raises(check.WrongAnswer, match=r"\w"):
            function(answer, *arguments, **keywords)
